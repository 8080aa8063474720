#include "system/deep_stack.h"

#include <cstdint>
#include <exception>
#include <system_error>

#include <fmt/format.h>
#include <pthread.h>

#include <sparsekiln/error.h>

namespace sparsekiln {
namespace {

/// Bytes between this frame and the end of the thread's stack; 0 if the frame is on another stack, such as a
/// fiber's, or the system does not say.
std::size_t stack_left() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* lowest = nullptr;
  std::size_t size = 0;
  const bool known = pthread_attr_getstack(&attributes, &lowest, &size) == 0;
  pthread_attr_destroy(&attributes);
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  const auto end = reinterpret_cast<std::uintptr_t>(lowest);
  return known && here > end && here - end < size ? here - end : 0;
}

struct Call {
  const std::function<void()>& work;
  std::exception_ptr thrown;

  static void* run(void* self) {
    auto& call = *static_cast<Call*>(self);
    try {
      call.work();
    } catch (...) {
      call.thrown = std::current_exception();
    }
    return nullptr;
  }
};

[[noreturn]] void fail(int error) {
  throw Error(
      ErrorKind::driver,
      fmt::format("compiling on a thread with little stack: there is no thread of {} MiB for it: {}; fewer "
                  "threads, or a call from one with that much stack, would work",
                  kDeepStack >> 20, std::generic_category().message(error)));
}

}  // namespace

void on_deep_stack(const std::function<void()>& work) {
  if (stack_left() >= kEnoughStack) return work();
  Call call{work, nullptr};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kDeepStack);
  pthread_t thread{};
  const int error = pthread_create(&thread, &attributes, Call::run, &call);
  pthread_attr_destroy(&attributes);
  if (error != 0) fail(error);
  pthread_join(thread, nullptr);
  if (call.thrown) std::rethrow_exception(call.thrown);
}

}  // namespace sparsekiln
