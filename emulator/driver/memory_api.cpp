#include <cstring>
#include <vector>

#include "emulator/driver/call.h"
#include "emulator/driver/capture.h"

// Memory (CUDA Driver API 13.0, sections 6.13 and 6.20). A range that is not within one allocation is
// CUDA_ERROR_INVALID_VALUE.

using namespace sparsekiln::driver;

namespace {

using sparsekiln::emulator::Allocation;

CUresult valid(bool in_range) { return in_range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

/// Queues a copy or fill on a stream; `blocking` ones are what a capture does not allow.
template <class Body>
CUresult queue(const std::shared_ptr<Context>& context, CUstream handle, bool blocking, Body body) {
  if (blocking)
    if (const CUresult refused = refuse_while_capturing(); refused != CUDA_SUCCESS) return refused;
  StreamUse stream;
  const CUresult result = find_stream(context, handle, stream);
  return result == CUDA_SUCCESS ? submit(stream, after_all(std::move(body))) : result;
}

/// Addresses that only a device may follow: of allocations that are, were, or may come to be.
bool is_of_devices(const void* memory) {
  const auto address = reinterpret_cast<std::uint64_t>(memory);
  return address >= sparsekiln::emulator::kConstantBase && address < sparsekiln::driver::kDevicesEnd;
}

CUresult to_device(CUdeviceptr to, const void* from, size_t bytes, CUstream stream, bool blocking) {
  return in_context(EMULATOR_FAULT_COPY, [&](const std::shared_ptr<Context>& context) -> CUresult {
    if (bytes == 0) return CUDA_SUCCESS;
    if (from == nullptr || is_of_devices(from)) return CUDA_ERROR_INVALID_VALUE;
    return queue(context, stream, blocking,
                 [=](Context& where) { return valid(where.memory.write(to, from, bytes)); });
  });
}

CUresult to_host(void* to, CUdeviceptr from, size_t bytes, CUstream stream, bool blocking) {
  return in_context(EMULATOR_FAULT_COPY, [&](const std::shared_ptr<Context>& context) -> CUresult {
    if (bytes == 0) return CUDA_SUCCESS;
    if (to == nullptr || is_of_devices(to)) return CUDA_ERROR_INVALID_VALUE;
    return queue(context, stream, blocking,
                 [=](Context& where) { return valid(where.memory.read(from, to, bytes)); });
  });
}

CUresult on_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, bool blocking) {
  return in_context(EMULATOR_FAULT_COPY, [&](const std::shared_ptr<Context>& context) -> CUresult {
    if (bytes == 0) return CUDA_SUCCESS;
    return queue(context, stream, blocking,
                 [=](Context& where) { return valid(where.memory.copy(to, from, bytes)); });
  });
}

/// cuMemcpy: an address outside the allocations of the context is one of the host.
CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, bool blocking) {
  bool device_to = false;
  bool device_from = false;
  const CUresult result = in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    device_to = context->memory.find(to) != nullptr;
    device_from = context->memory.find(from) != nullptr;
    if (bytes != 0 && (to == 0 || from == 0)) return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) return result;
  if (device_to && device_from) return on_device(to, from, bytes, stream, blocking);
  if (device_to) return to_device(to, reinterpret_cast<const void*>(from), bytes, stream, blocking);
  if (device_from) return to_host(reinterpret_cast<void*>(to), from, bytes, stream, blocking);
  return CUDA_ERROR_INVALID_VALUE;
}

/// `count` elements of `value` at `to`.
template <class Value>
CUresult fill(Context& where, CUdeviceptr to, Value value, size_t count) {
  const Allocation* const target = where.memory.find(to);
  if (target == nullptr || count > (target->address + target->bytes - to) / sizeof(Value))
    return CUDA_ERROR_INVALID_VALUE;
  if constexpr (sizeof(Value) == 1) return valid(where.memory.fill(to, value, count));
  const std::vector<Value> pattern(count, value);
  return valid(where.memory.write(to, pattern.data(), count * sizeof(Value)));
}

template <class Value>
CUresult set(CUdeviceptr to, Value value, size_t count, CUstream stream, bool blocking) {
  return in_context(EMULATOR_FAULT_COPY, [&](const std::shared_ptr<Context>& context) -> CUresult {
    if (to % sizeof(Value) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (count == 0) return CUDA_SUCCESS;
    return queue(context, stream, blocking, [=](Context& where) { return fill(where, to, value, count); });
  });
}

CUresult allocate_host(void** made, size_t bytes, unsigned flags) {
  return in_context(EMULATOR_FAULT_ALLOCATE, [&](const std::shared_ptr<Context>& context) -> CUresult {
    if (made == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = refuse_while_capturing(); refused != CUDA_SUCCESS) return refused;
    auto memory = std::make_shared<HostMemory>();
    memory->context = context;
    memory->owned.reset(new std::byte[bytes]);  // not zeroed: large ones are never touched in full
    memory->begin = memory->owned.get();
    memory->bytes = bytes;
    memory->flags = flags;
    *made = memory->begin;
    process().host_memory.add(static_cast<void*>(memory->begin), memory);
    return CUDA_SUCCESS;
  });
}

/// The pinned memory that holds `address`; null where none does.
std::shared_ptr<HostMemory> find_host(CUdeviceptr address) {
  const auto* const at = reinterpret_cast<const std::byte*>(address);
  for (const auto& memory : process().host_memory.all())
    if (at >= memory->begin && at < memory->begin + memory->bytes) return memory;
  return nullptr;
}

/// The attributes of a pointer, device or pinned.
struct Pointed {
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  Context* context = nullptr;
  CUdeviceptr begin = 0;
  size_t bytes = 0;
};

template <class Value>
CUresult put(void* data, Value value) {
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult tell(const Pointed& pointed, CUpointer_attribute which, CUdeviceptr pointer, void* data) {
  const bool device = pointed.type == CU_MEMORYTYPE_DEVICE;
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(data, pointed.context->handle);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(data, unsigned{pointed.type});
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return device ? put(data, pointer) : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return device ? CUDA_ERROR_INVALID_VALUE : put(data, reinterpret_cast<void*>(pointer));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(data, 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(data, pointed.context->device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, pointed.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(data, pointed.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(data, 1u);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

std::size_t size_of(CUpointer_attribute which) {
  switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return 8;
    default:
      return 4;
  }
}

bool find_pointed(Context& context, CUdeviceptr pointer, Pointed& pointed) {
  if (const Allocation* const allocation = context.memory.find(pointer)) {
    pointed = {CU_MEMORYTYPE_DEVICE, &context, allocation->address, allocation->bytes};
    return true;
  }
  const auto host = find_host(pointer);
  if (host == nullptr) return false;
  pointed = {CU_MEMORYTYPE_HOST, host->context.get(), reinterpret_cast<CUdeviceptr>(host->begin),
             host->bytes};
  return true;
}

}  // namespace

// ---- allocations ----

CUresult cuMemAlloc_v2(CUdeviceptr* made, size_t bytes) {
  return in_context(EMULATOR_FAULT_ALLOCATE, [&](const std::shared_ptr<Context>& context) -> CUresult {
    if (made == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = refuse_while_capturing(); refused != CUDA_SUCCESS) return refused;
    const Allocation* const allocation = context->memory.allocate(bytes);
    if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *made = allocation->address;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    if (const CUresult refused = refuse_while_capturing(); refused != CUDA_SUCCESS) return refused;
    const std::lock_guard lock(context->work);  // waits for what may still use it
    context->chains.clear();
    const Allocation* const allocation = context->memory.find(address);
    // A variable goes with its module.
    if (allocation == nullptr || allocation->address != address || !allocation->name.empty())
      return CUDA_ERROR_INVALID_VALUE;
    return valid(context->memory.release(address));
  });
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *total = context->memory.capacity();
    *free = context->memory.capacity() - context->memory.used();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* begin, size_t* bytes, CUdeviceptr address) {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    const Allocation* const allocation = context->memory.find(address);
    if (allocation == nullptr) return CUDA_ERROR_NOT_FOUND;
    if (begin != nullptr) *begin = allocation->address;
    if (bytes != nullptr) *bytes = allocation->bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAllocHost_v2(void** made, size_t bytes) { return allocate_host(made, bytes, 0); }

CUresult cuMemHostAlloc(void** made, size_t bytes, unsigned flags) {
  // Devices of this driver do not see host memory: cuMemHostGetDevicePointer is not there.
  return (flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                  : allocate_host(made, bytes, flags);
}

CUresult cuMemFreeHost(void* memory) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    const auto found = process().host_memory.find(memory);
    if (found == nullptr || found->owned == nullptr) return CUDA_ERROR_INVALID_VALUE;
    process().host_memory.remove(memory);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    if (memory == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_MEMHOSTREGISTER_DEVICEMAP) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (find_host(reinterpret_cast<CUdeviceptr>(memory)) != nullptr)
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    auto registered = std::make_shared<HostMemory>();
    registered->context = context;
    registered->begin = static_cast<std::byte*>(memory);
    registered->bytes = bytes;
    registered->flags = flags;
    process().host_memory.add(memory, std::move(registered));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostUnregister(void* memory) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    const auto found = process().host_memory.find(memory);
    if (found == nullptr || found->owned != nullptr) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    process().host_memory.remove(memory);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetFlags(unsigned* flags, void* memory) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    const auto found = find_host(reinterpret_cast<CUdeviceptr>(memory));
    if (flags == nullptr || found == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = found->flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr pointer) {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    Pointed pointed;
    if (data == nullptr || !find_pointed(*context, pointer, pointed)) return CUDA_ERROR_INVALID_VALUE;
    return tell(pointed, which, pointer, data);
  });
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* which, void** data,
                                CUdeviceptr pointer) {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    if (which == nullptr || data == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    Pointed pointed;
    const bool known = find_pointed(*context, pointer, pointed);
    for (unsigned i = 0; i < count; ++i) {
      if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      // For an unknown pointer, and for an unknown attribute, the interface asks for zero.
      if (!known || tell(pointed, which[i], pointer, data[i]) != CUDA_SUCCESS)
        std::memset(data[i], 0, size_of(which[i]));
    }
    return CUDA_SUCCESS;
  });
}

// ---- copies ----

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return to_device(to, from, bytes, CU_STREAM_LEGACY, true);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return to_device(to, from, bytes, stream, false);
}
CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return to_host(to, from, bytes, CU_STREAM_LEGACY, true);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return to_host(to, from, bytes, stream, false);
}
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return on_device(to, from, bytes, CU_STREAM_LEGACY, true);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return on_device(to, from, bytes, stream, false);
}
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy(to, from, bytes, CU_STREAM_LEGACY, true);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(to, from, bytes, stream, false);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return set<std::uint8_t>(to, value, count, CU_STREAM_LEGACY, true);
}
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return set<std::uint16_t>(to, value, count, CU_STREAM_LEGACY, true);
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return set<std::uint32_t>(to, value, count, CU_STREAM_LEGACY, true);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return set<std::uint8_t>(to, value, count, stream, false);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return set<std::uint16_t>(to, value, count, stream, false);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return set<std::uint32_t>(to, value, count, stream, false);
}
