#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <cuda.h>

#include "runtime/device.h"

namespace sparsekiln::cuda {

/// How the parameters of one kernel are made from the operands of a launch: decided when it is loaded, so
/// that a launch only copies a few words and points at them.
class LaunchPlan {
 public:
  static constexpr std::size_t kMaxArguments = 28;

  /// Throws `internal` for a recipe that no emitter makes.
  explicit LaunchPlan(std::span<const Argument> arguments);

  /// The values of one launch in the types that kernels take. `pointers` refers into it and into the launch:
  /// both must outlive the call of the driver.
  class Values {
   public:
    /// `tables`: what the parameter of an attached layout is copied from, see AttachedTables::argument.
    /// `maps`: what those of tensor maps are copied from, in their order.
    Values(const LaunchPlan& plan, const Launch& launch, const void* tables = nullptr,
           const CUtensorMap* maps = nullptr) noexcept
        : n_(static_cast<std::int32_t>(launch.n)) {
      const auto* base = reinterpret_cast<const std::byte*>(static_cast<const LaunchOperands*>(&launch));
      for (std::size_t i = 0; i < plan.count_; ++i) {
        const void* const from = plan.offset_[i] == kTables      ? tables
                                 : plan.offset_[i] == kN         ? static_cast<const void*>(&n_)
                                 : plan.offset_[i] == kTensorMap ? static_cast<const void*>(maps++)
                                                                 : base + plan.offset_[i];
        pointers_[i] = const_cast<void*>(from);  // cuLaunchKernel reads, though it does not say so
      }
    }
    Values(const Values&) = delete;
    Values& operator=(const Values&) = delete;

    /// cuLaunchKernel's kernelParams: one pointer a parameter.
    [[nodiscard]] void** pointers() noexcept { return pointers_; }

   private:
    std::int32_t n_;
    void* pointers_[kMaxArguments];
  };

 private:
  /// Where LaunchOperands has what an argument is, or one of the following.
  [[nodiscard]] static std::uint16_t place_of(Argument argument);

  // No offsets:
  static constexpr std::uint16_t kTables = 0xffff;     ///< the tables of an attached layout
  static constexpr std::uint16_t kN = 0xfffe;          ///< n as kernels take it
  static constexpr std::uint16_t kTensorMap = 0xfffd;  ///< the next tensor map

  std::array<std::uint16_t, kMaxArguments> offset_{};
  std::size_t count_ = 0;
};

}  // namespace sparsekiln::cuda
