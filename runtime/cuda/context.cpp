#include "runtime/cuda/context.h"

#include <new>
#include <utility>

#include <fmt/format.h>

#include <sparsekiln/error.h>

namespace sparsekiln::cuda {
namespace {

CUdevice device_handle(const Driver& driver, int ordinal) {
  CUdevice device = 0;
  driver.check(driver.api().device_get(&device, ordinal), fmt::format("opening CUDA device {}", ordinal));
  return device;
}

CUcontext retain_primary(const Driver& driver, const DeviceInfo& device) {
  CUcontext primary = nullptr;
  driver.check(driver.api().primary_ctx_retain(&primary, device_handle(driver, device.ordinal)),
               fmt::format("making a context on CUDA device {} ({})", device.ordinal, device.name));
  return primary;
}

/// Whether `context` is the primary one of its device, which is then retained.
bool retain_if_primary(const Driver& driver, CUcontext context, CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  CUcontext primary = nullptr;
  if (driver.api().primary_ctx_get_state(device, &flags, &active) != CUDA_SUCCESS || active == 0)
    return false;
  if (driver.api().primary_ctx_retain(&primary, device) != CUDA_SUCCESS) return false;
  if (primary == context) return true;
  static_cast<void>(driver.api().primary_ctx_release(device));
  return false;
}

/// The number of a device. The driver's handles are numbers today, but nothing says that they must be.
int ordinal_of(const Driver& driver, CUdevice device) {
  int count = 0;
  driver.check(driver.api().device_get_count(&count), "counting the CUDA devices");
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    if (device_handle(driver, ordinal) == device) return ordinal;
  }
  return static_cast<int>(device);
}

CUdevice current_device(const Driver& driver) {
  CUdevice device = 0;
  driver.check(driver.api().ctx_get_device(&device), "asking for the device of the current CUDA context");
  return device;
}

[[noreturn]] void fail_to_enter(const Context& context, CUresult result) {
  context.driver().fail(result, fmt::format("making the context of CUDA device {} ({}) current",
                                            context.device().ordinal, context.device().name));
}

}  // namespace

std::shared_ptr<const Context> Context::open(int ordinal, DriverKind kind) {
  std::shared_ptr<const Driver> driver = Driver::find(kind);
  CUcontext const current = driver->current_context();
  if (ordinal < 0 && current != nullptr) {
    const CUdevice device = current_device(*driver);
    DeviceInfo info = device_info(*driver, ordinal_of(*driver, device));
    const bool retained = retain_if_primary(*driver, current, device);
    return std::shared_ptr<const Context>(
        new Context(kind, std::move(driver), std::move(info), current, retained));
  }
  DeviceInfo info = device_info(*driver, ordinal < 0 ? 0 : ordinal);
  CUcontext primary = retain_primary(*driver, info);
  std::shared_ptr<const Context> context(
      new Context(kind, std::move(driver), std::move(info), primary, true));
  // A thread that has none gets one; a thread that has another keeps it.
  if (current == nullptr) context->stay_current();
  return context;
}

void Context::stay_current() const {
  if (!stays_current()) return;
  const CUresult result = api().ctx_set_current(handle_);
  if (result != CUDA_SUCCESS) fail_to_enter(*this, result);
}

void Context::admit_thread() const {
  if (driver_->current_context() == nullptr) return stay_current();
  const int current = ordinal_of(*driver_, current_device(*driver_));
  if (current == device_.ordinal) return;
  throw Error(
      ErrorKind::driver,
      fmt::format("this kernel is on CUDA device {} ({}), and a context of CUDA device {} is current on "
                  "this thread: make one of device {} current before the launch, or load the kernel "
                  "where it is to run",
                  device_.ordinal, device_.name, current, device_.ordinal));
}

Context::~Context() {
  if (!retained_) return;
  CUdevice device = 0;
  // Failures are the driver shutting down at the end of the process: there is nothing left to give back then.
  if (api().device_get(&device, device_.ordinal) == CUDA_SUCCESS)
    static_cast<void>(api().primary_ctx_release(device));
}

ContextScope::ContextScope(const Context& context, std::nothrow_t) noexcept : api_(context.api()) {
  if (context.is_current()) return;
  result_ = api_.ctx_push_current(context.handle());
  pushed_ = result_ == CUDA_SUCCESS;
}

ContextScope::ContextScope(const Context& context) : ContextScope(context, std::nothrow) {
  if (!entered()) fail_to_enter(context, result_);
}

ContextScope::~ContextScope() {
  CUcontext popped = nullptr;
  if (pushed_) static_cast<void>(api_.ctx_pop_current(&popped));
}

}  // namespace sparsekiln::cuda
