#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/machine/launch.h"
#include "emulator/machine/memory.h"
#include "emulator/machine/report.h"
#include "emulator/program/decode.h"
#include "emulator/ptx/module.h"

namespace sparsekiln::emulator {

/// Seeds under which a fault must be found, and its correct twin be clean.
inline constexpr std::uint64_t kSeeds = 8;

/// A small kernel: `body` between registers (%p0…9, %r0…39, %rd0…19, %f0…19, %h0…9) and `ret`. Parameters p0,
/// p1, p2 are 64-bit: addresses of global memory, in %rd0, %rd1, %rd2 at the start; %r0 is %tid.x, %r1
/// %ctaid.x. `declarations` stand in the module, `limits` before the body.
class Kernel {
 public:
  explicit Kernel(const std::string& body, const std::string& declarations = {},
                  const std::string& limits = {});

  std::uint32_t blocks = 1;
  std::uint32_t threads = 32;
  std::uint32_t cluster = 1;  ///< blocks
  Checks checks;
  std::uint64_t number = 1;
  int host_threads = 1;
  std::uint32_t dynamic_shared = 0;
  std::uint32_t resident_blocks = 132 * 16;

  /// Allocates the next parameter's memory, nothing in it written, or all zero.
  std::uint64_t unwritten(std::uint64_t bytes);
  std::uint64_t zeros(std::uint64_t bytes);

  /// Runs once more; global memory keeps its contents.
  Counters run(std::uint64_t seed = 0);
  /// The fault under a seed, if there is one, on fresh zeros.
  [[nodiscard]] std::optional<Fault> fault(std::uint64_t seed);
  /// Whether every seed finds a fault of this kind, and its report holds all of `texts`.
  [[nodiscard]] bool always(FaultKind kind, std::initializer_list<std::string_view> texts = {});
  /// Whether every seed finds a race, where bytes that nothing has written yet are none.
  [[nodiscard]] bool always_races(std::initializer_list<std::string_view> texts = {});
  /// Whether no seed finds any fault.
  [[nodiscard]] bool clean();

  template <class T>
  [[nodiscard]] T read(std::uint64_t address) const {
    T value;
    memory_->read(address, &value, sizeof value);
    return value;
  }

  GlobalMemory& memory() { return *memory_; }
  [[nodiscard]] const Program& program() const { return program_; }
  std::vector<std::uint64_t> parameters;

 private:
  std::unique_ptr<GlobalMemory> memory_ = std::make_unique<GlobalMemory>(std::uint64_t{1} << 30);
  Program program_;
};

}  // namespace sparsekiln::emulator
