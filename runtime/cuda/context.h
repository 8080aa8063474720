#pragma once

#include <memory>

#include "runtime/cuda/device_info.h"

namespace sparsekiln::cuda {

/// A context of one device. A primary context is retained while this lives; another one belongs to the caller
/// who made it.
class Context {
 public:
  /// A primary context, by the device's number; -1: the context that is current on the calling thread, else
  /// the primary one of device 0. Where no context was current, the opened one is afterwards if it
  /// `stays_current`. Throws `driver`.
  [[nodiscard]] static std::shared_ptr<const Context> open(int ordinal, DriverKind kind = DriverKind::cuda);

  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  [[nodiscard]] const Driver& driver() const noexcept { return *driver_; }
  [[nodiscard]] const DriverApi& api() const noexcept { return driver_->api(); }
  [[nodiscard]] CUcontext handle() const noexcept { return handle_; }
  [[nodiscard]] const DeviceInfo& device() const noexcept { return device_; }
  /// Whether a thread that has no context is given this one for good, as the CUDA runtime does with primary
  /// contexts. Others are entered for a call and left again: one that the caller made may be destroyed at
  /// any time, and where the context of an emulated device stayed, nothing could put another one in its
  /// place.
  [[nodiscard]] bool stays_current() const noexcept { return retained_ && !emulated(); }
  [[nodiscard]] bool emulated() const noexcept { return kind_ != DriverKind::cuda; }

  /// Makes the calling thread ready for a launch in this context, for which a ContextScope then enters it.
  /// A thread without a context has this one from here on if it `stays_current`. Throws `driver` where a
  /// context of another device is current, or where the driver refuses this one.
  void admit_thread() const;

  /// Costs one call that reads a thread's variable; for every launch.
  [[nodiscard]] bool is_current() const noexcept {
    CUcontext current = nullptr;
    return driver_->api().ctx_get_current(&current) == CUDA_SUCCESS && current == handle_;
  }

 private:
  Context(DriverKind kind, std::shared_ptr<const Driver> driver, DeviceInfo device, CUcontext handle,
          bool retained)
      : kind_(kind),
        driver_(std::move(driver)),
        device_(std::move(device)),
        handle_(handle),
        retained_(retained) {}

  /// For a thread without a context.
  void stay_current() const;

  DriverKind kind_;
  std::shared_ptr<const Driver> driver_;
  DeviceInfo device_;
  CUcontext handle_;
  bool retained_;
};

/// Makes a context current for a scope, and puts back what was there.
class ContextScope {
 public:
  /// Throws `driver` where the context cannot be made current, for instance because its owner has destroyed
  /// it.
  explicit ContextScope(const Context& context);
  /// For destructors: where it fails, `entered()` says so.
  ContextScope(const Context& context, std::nothrow_t) noexcept;
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope();

  [[nodiscard]] bool entered() const noexcept { return result_ == CUDA_SUCCESS; }

 private:
  const DriverApi& api_;
  CUresult result_ = CUDA_SUCCESS;
  bool pushed_ = false;
};

}  // namespace sparsekiln::cuda
