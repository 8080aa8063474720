#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/device.h"

namespace sparsekiln::cuda {

/// How the parameters of one kernel are made from the operands of a launch: decided when it is loaded, so
/// that a launch only copies a few words and points at them.
class LaunchPlan {
 public:
  static constexpr std::size_t kMaxArguments = 16;

  /// Throws `internal` for a recipe that no emitter makes.
  explicit LaunchPlan(std::span<const Argument> arguments);

  /// The values of one launch in the types that kernels take. `pointers` refers into it: it must outlive the
  /// call of the driver, and must not be copied.
  class Values {
   public:
    /// `tables`: what the parameter of an attached layout is copied from, see AttachedTables::argument.
    Values(const LaunchPlan& plan, const Launch& launch, const void* tables = nullptr) noexcept
        : operands_{launch.x,
                    launch.w,
                    launch.y,
                    launch.workspace,
                    launch.x_stride,
                    launch.y_stride,
                    static_cast<std::int32_t>(launch.n)} {
      auto* base = reinterpret_cast<std::byte*>(&operands_);
      for (std::size_t i = 0; i < plan.count_; ++i)
        pointers_[i] = plan.offset_[i] == kTables ? const_cast<void*>(tables) : base + plan.offset_[i];
    }
    Values(const Values&) = delete;
    Values& operator=(const Values&) = delete;

    /// cuLaunchKernel's kernelParams: one pointer a parameter.
    [[nodiscard]] void** pointers() noexcept { return pointers_; }

   private:
    friend class LaunchPlan;
    struct Operands {
      const void* x;
      const void* w;
      void* y;
      void* workspace;
      std::int64_t x_stride;
      std::int64_t y_stride;
      std::int32_t n;
    };
    Operands operands_;
    void* pointers_[kMaxArguments];
  };

 private:
  static constexpr std::uint8_t kTables = 255;  ///< no offset: the tables of an attached layout
  static std::uint8_t offset_of(Argument argument);

  std::array<std::uint8_t, kMaxArguments> offset_{};
  std::size_t count_ = 0;
};

}  // namespace sparsekiln::cuda
