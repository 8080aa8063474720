#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/machine/launch.h"
#include "emulator/machine/memory.h"
#include "emulator/machine/report.h"
#include "emulator/machine/tensor_map.h"

namespace sparsekiln::emulator {

/// A kernel with a tensor map among its parameters, and memory that is the same before each run.
///
/// `body` finds %rd0, %rd1: addresses of `from` and `to`; %rd2: of the map; %r0: the thread, %r1: the block,
/// %r8: the address of four mbarriers, the first initialized for one arrival; %r9: of 8192 bytes of shared
/// memory, aligned to 1024; %p8: whether the thread is the first. Labels L0 to L9 and the registers %r20 and
/// above, %rd10 and above, %p3 and above are not for it.
class BulkKernel {
 public:
  explicit BulkKernel(const std::string& body);

  std::vector<std::uint32_t> from = numbers(2048);
  std::vector<std::uint32_t> to = std::vector<std::uint32_t>(2048, 0xeeeeeeee);
  TensorMap map;  ///< its address is that of `from`, or of `to`
  bool map_is_to = false;
  std::uint32_t threads = 64;
  std::uint32_t blocks = 1;
  std::uint32_t cluster = 1;
  int host_threads = 1;
  Checks checks;
  Counters counters;  ///< of the last run

  /// What `to` holds afterwards. Throws Fault.
  [[nodiscard]] std::vector<std::uint32_t> run(std::uint64_t seed);
  [[nodiscard]] std::optional<Fault> fault(std::uint64_t seed);
  /// Whether every seed finds a fault of this kind whose report holds all of `texts`.
  [[nodiscard]] bool always(FaultKind kind, std::initializer_list<std::string_view> texts = {});
  /// Whether no seed finds a fault, and every seed leaves `expected` in `to`, from its start on.
  [[nodiscard]] bool gives(const std::vector<std::uint32_t>& expected);

  /// 1000, 1001, …
  [[nodiscard]] static std::vector<std::uint32_t> numbers(std::uint32_t many);
  /// `words` of shared memory to `to`, or from `from`, by all threads.
  [[nodiscard]] static std::string copy_out(std::uint32_t words, std::uint32_t threads = 64);
  [[nodiscard]] static std::string copy_in(std::uint32_t words, std::uint32_t threads = 64);
  /// By the first thread: the first mbarrier expects so many bytes, and its own arrival.
  [[nodiscard]] static std::string expect(std::uint32_t bytes);
  /// All threads wait for phase 0 of the first mbarrier.
  [[nodiscard]] static std::string wait();

 private:
  Program program_;
};

/// A matrix of 32-bit numbers, 32 a row, of `rows` rows, in boxes of 32 × 8.
[[nodiscard]] TensorMap matrix_of(std::uint64_t rows, Swizzle swizzle = Swizzle::none);

}  // namespace sparsekiln::emulator
