
#include "emulator/driver/call.h"
#include "emulator/driver/capture.h"

// Primary contexts and contexts (CUDA Driver API 13.0, sections 6.7 and 6.8).

using namespace sparsekiln::driver;

namespace {

bool is_device(CUdevice device) { return device >= 0 && device < static_cast<int>(devices().size()); }

/// A call about a primary context: `body(Primary&)` with its lock held.
template <class Body>
CUresult for_primary(CUdevice device, Body body) noexcept {
  return call([&]() -> CUresult {
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    const std::lock_guard lock(process().primary_mutex);
    return body(process().primaries[static_cast<std::size_t>(device)]);
  });
}

/// Those flags that mean nothing to a driver without threads that wait, and no others.
bool are_flags(unsigned flags) { return (flags & ~unsigned{CU_CTX_FLAGS_MASK}) == 0; }

CUresult create_context(CUcontext* made, unsigned flags, CUdevice device) {
  return call([&]() -> CUresult {
    if (made == nullptr || !are_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    auto context = std::make_shared<Context>(device, false);
    context->flags = flags;
    const auto handle = reinterpret_cast<CUcontext>(next_handle());
    context->handle = handle;
    process().contexts.add(handle, std::move(context));
    context_stack().push_back(handle);
    *made = handle;
    return CUDA_SUCCESS;
  });
}

}  // namespace

// ---- primary contexts ----

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return for_primary(device, [&](Primary& primary) -> CUresult {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (process().contexts.find(primary.handle) == nullptr) {
      auto made = std::make_shared<Context>(device, true);
      made->handle = primary.handle;
      made->flags = primary.flags;
      process().contexts.add(primary.handle, std::move(made));
    }
    ++primary.references;
    *context = primary.handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return for_primary(device, [&](Primary& primary) -> CUresult {
    if (primary.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary.references == 0) process().destroy(primary.handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  // Who retained it must still release it, and may retain it again: then it is a new one.
  return for_primary(device, [&](Primary& primary) -> CUresult {
    process().destroy(primary.handle);
    process().set_report({});
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  return for_primary(device, [&](Primary& primary) -> CUresult {
    if (!are_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    primary.flags = flags;
    if (const auto context = process().contexts.find(primary.handle)) context->flags = flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return for_primary(device, [&](Primary& primary) -> CUresult {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = primary.flags;
    *active = process().contexts.find(primary.handle) != nullptr ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

// ---- contexts ----

CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return create_context(context, flags, device);
}

#if CUDA_VERSION >= 12050
CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned flags, CUdevice device) {
  const bool plain =
      parameters == nullptr || (parameters->numExecAffinityParams == 0 && parameters->cigParams == nullptr);
  return plain ? create_context(context, flags, device) : CUDA_ERROR_NOT_SUPPORTED;
}
#endif

CUresult cuCtxDestroy_v2(CUcontext handle) {
  return call([&]() -> CUresult {
    const auto context = process().contexts.find(handle);
    if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context_stack().empty() && context_stack().back() == handle) context_stack().pop_back();
    process().destroy(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  return call([&]() -> CUresult {
    if (process().contexts.find(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    context_stack().push_back(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* handle) {
  return call([&]() -> CUresult {
    if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (handle != nullptr) *handle = context_stack().back();
    context_stack().pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  return call([&]() -> CUresult {
    if (handle != nullptr && process().contexts.find(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context_stack().empty()) context_stack().pop_back();
    if (handle != nullptr) context_stack().push_back(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* handle) {
  return call([&] { return answer(handle, context_stack().empty() ? nullptr : context_stack().back()); });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return in_context([&](const std::shared_ptr<Context>& context) { return answer(device, context->device); });
}

CUresult cuCtxGetFlags(unsigned* flags) {
  return in_context([&](const std::shared_ptr<Context>& context) { return answer(flags, context->flags); });
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  return call([&]() -> CUresult {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (handle == nullptr && context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (process().contexts.find(handle == nullptr ? context_stack().back() : handle) == nullptr)
      return CUDA_ERROR_INVALID_CONTEXT;
    *version = 3020;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return call([&]() -> CUresult {
    if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (handle == nullptr && !context_stack().empty()) handle = context_stack().back();
    if (process().contexts.find(handle) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *id = reinterpret_cast<std::uintptr_t>(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return in_context(EMULATOR_FAULT_SYNCHRONIZE, [](const std::shared_ptr<Context>& context) -> CUresult {
    if (const CUresult refused = refuse_while_capturing(); refused != CUDA_SUCCESS) return refused;
    const std::lock_guard lock(context->work);  // another thread's launch
    context->chains.clear();
    return context->fault;
  });
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    switch (limit) {
      case CU_LIMIT_STACK_SIZE:
        *value = 1024;
        return CUDA_SUCCESS;
      case CU_LIMIT_PRINTF_FIFO_SIZE:
      case CU_LIMIT_MALLOC_HEAP_SIZE:
        *value = 0;  // kernels have neither
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
  });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    return limit == CU_LIMIT_STACK_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE ||
                   limit == CU_LIMIT_MALLOC_HEAP_SIZE
               ? CUDA_SUCCESS  // a driver may give less than was asked for
               : CUDA_ERROR_UNSUPPORTED_LIMIT;
  });
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return CUDA_SUCCESS;
  });
}
