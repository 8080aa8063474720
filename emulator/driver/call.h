#pragma once

#include <memory>
#include <new>

#include "emulator/driver/process.h"

namespace sparsekiln::driver {

/// No exception crosses the C interface.
template <class Body>
CUresult guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

/// Whether the calling thread may call the driver at all.
[[nodiscard]] inline CUresult permitted() {
  if (!process().initialised) return CUDA_ERROR_NOT_INITIALIZED;
  return in_host_function() ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

/// A call that needs cuInit, and no context.
template <class Body>
CUresult call(Body body) noexcept {
  return guarded([&]() -> CUresult {
    const CUresult result = permitted();
    return result == CUDA_SUCCESS ? body() : result;
  });
}

/// The current context of the calling thread: an answer other than CUDA_SUCCESS where there is none, it was
/// destroyed, or a kernel made it useless.
[[nodiscard]] inline CUresult current_context(std::shared_ptr<Context>& context) {
  if (const CUresult result = permitted(); result != CUDA_SUCCESS) return result;
  if (context_stack().empty() || context_stack().back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  context = process().contexts.find(context_stack().back());
  return context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : context->fault.load();
}

/// A call in the current context: `body(const std::shared_ptr<Context>&)`.
template <class Body>
CUresult in_context(Body body) noexcept {
  return guarded([&]() -> CUresult {
    std::shared_ptr<Context> context;
    const CUresult result = current_context(context);
    return result == CUDA_SUCCESS ? body(context) : result;
  });
}

/// As `in_context`, for a call that may fail on purpose (EMULATOR_FAULT_…).
template <class Body>
CUresult in_context(int fault, Body body) noexcept {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    const CUresult planned = process().planned_fault(fault);
    return planned == CUDA_SUCCESS ? body(context) : planned;
  });
}

/// Answers a question of the caller's: `to` is where it wants `value`.
template <class To, class Value>
[[nodiscard]] CUresult answer(To* to, const Value& value) {
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *to = value;
  return CUDA_SUCCESS;
}

}  // namespace sparsekiln::driver
