#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sparsekiln {

/// What a Binary is for: an architecture, and the number of workers that its schedule is balanced over.
struct Target {
  enum class Kind : std::uint8_t { cpu, cuda };
  static constexpr Kind kLastKind = Kind::cuda;

  Kind kind = Kind::cpu;
  /// CUDA: "sm_75", "sm_90", "sm_90a" … CPU: an LLVM level of the host family, "x86-64", "x86-64-v3" (AVX2,
  /// FMA), "x86-64-v4" (AVX-512), "x86-64-v4-bf16" (with AVX512-BF16), or "generic" elsewhere.
  std::string arch;
  /// Streaming multiprocessors, or threads.
  std::int32_t workers = 1;

  /// "sm_90a:132"; a preset ("h100", "h200", "a100", "t4", "b200" …); "sm_90" (the usual part of that
  /// architecture); "cpu", "cpu:8" (this host); "x86-64-v3:2". Throws `invalid_argument` and lists what is
  /// known. `cuda` is not known here: it means a device, see `resolve_target` in compile.h.
  [[nodiscard]] static Target parse(std::string_view text);
  /// This machine through LLVM, one worker a hardware thread that the process may use.
  [[nodiscard]] static Target host();

  /// Compute capability × 10, e.g. 90 for sm_90a; 0 for cpu.
  [[nodiscard]] int compute_capability() const;
  /// "sm_90a:132"; `parse` of it gives the same target.
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const Target&, const Target&) = default;
};

}  // namespace sparsekiln
