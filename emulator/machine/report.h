#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "emulator/program/program.h"

namespace sparsekiln::emulator {

/// What a kernel did wrong.
enum class FaultKind : std::uint8_t {
  out_of_bounds,
  misaligned,
  unwritten_read,
  race,
  barrier_not_reached,
  copy_not_awaited,
  copy_overwritten,
  launch_not_awaited,
  registers_not_awaited,
  registers_not_fenced,
  deadlock,
  divergence_not_supported,
  trap,
  invalid_operation,
};
[[nodiscard]] const char* name(FaultKind kind);

/// One side of what happened: who, where.
struct Site {
  const Program* program = nullptr;
  std::uint32_t block[3] = {0, 0, 0};
  std::uint32_t thread[3] = {0, 0, 0};
  std::uint32_t pc = 0;
};

/// "kernel k, block (1,0,0), thread (5,0,0): st.shared.f32 [%r4], %f1; at PTX line 120, kernel.cu:88"
[[nodiscard]] std::string describe(const Site& site);
/// "st.shared.f32 [%r4], %f1; at PTX line 120, kernel.cu:88"
[[nodiscard]] std::string describe_code(const Program& program, std::uint32_t pc);
/// "thread (5,0,0) of block (1,0,0)"
[[nodiscard]] std::string describe_thread(const Site& site);

/// "0x…"
[[nodiscard]] std::string hex(std::uint64_t value);

/// Thrown out of a handler; ends the launch. The message says what happened and names every side.
class Fault : public std::runtime_error {
 public:
  Fault(FaultKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] FaultKind kind() const noexcept { return kind_; }

 private:
  FaultKind kind_;
};

}  // namespace sparsekiln::emulator
