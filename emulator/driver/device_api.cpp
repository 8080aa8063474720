#include <cstdio>
#include <cstring>
#include <string>

#include "emulator/driver/call.h"
#include "emulator/driver/devices.h"
#include "emulator/driver/errors.h"
#include "emulator/driver/host.h"

// Initialization, errors, devices (CUDA Driver API 13.0, sections 6.1 to 6.6).

using namespace sparsekiln::driver;

namespace {

constexpr int kVersion = 13000;
/// No machine's own: what this driver's devices sit on is no PCI bus.
constexpr int kPciDomain = 0xe000;

bool is_device(CUdevice device) { return device >= 0 && device < static_cast<int>(devices().size()); }

/// A call about a device: `body()`, where there is such a one.
template <class Body>
CUresult for_device(CUdevice device, Body body) noexcept {
  return call([&]() -> CUresult { return is_device(device) ? body() : CUDA_ERROR_INVALID_DEVICE; });
}

}  // namespace

CUresult cuInit(unsigned flags) {
  const char* const missing = missing_host_features();
  if (*missing != '\0') {
    return guarded([&]() -> CUresult {
      process().set_report(
          std::string("the emulator was compiled for processors with AVX2, FMA, BMI1 and BMI2, and "
                      "this one has no ") +
          missing);
      return CUDA_ERROR_SYSTEM_NOT_READY;
    });
  }
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return guarded([]() -> CUresult {
    process().initialised = true;
    return CUDA_SUCCESS;
  });
}

CUresult cuDriverGetVersion(int* version) { return answer(version, kVersion); }

CUresult cuGetErrorName(CUresult error, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = error_name(error);
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = error_text(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  return call([&] { return answer(count, static_cast<int>(devices().size())); });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return for_device(ordinal, [&] { return answer(device, ordinal); });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return for_device(device, [&]() -> CUresult {
    if (name == nullptr || length < 1) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(name, static_cast<std::size_t>(length), "%s", devices()[device].name);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return for_device(device, [&]() -> CUresult {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    constexpr char kText[] = "sparsekilnemula";
    static_assert(sizeof kText == sizeof uuid->bytes);
    std::memcpy(uuid->bytes, kText, sizeof uuid->bytes);
    uuid->bytes[sizeof uuid->bytes - 1] = static_cast<char>(devices()[device].compute_capability);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid(uuid, device); }

CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  return for_device(device, [&]() -> CUresult {
    char text[16];
    const int wanted = std::snprintf(text, sizeof text, "%04x:%02x:00.0", kPciDomain, device + 1);
    if (id == nullptr || length <= wanted) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(id, text, static_cast<std::size_t>(wanted) + 1);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  return call([&]() -> CUresult {
    if (device == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
    for (CUdevice at = 0; is_device(at); ++at) {
      char text[16];
      if (cuDeviceGetPCIBusId(text, sizeof text, at) != CUDA_SUCCESS || std::strcmp(text, id) != 0) continue;
      *device = at;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return for_device(device,
                    [&] { return answer(bytes, static_cast<size_t>(devices()[device].memory_bytes)); });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  return for_device(device, [&]() -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (which == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) {
      *value = kPciDomain;
      return CUDA_SUCCESS;
    }
    const std::optional<int> known = attribute(device, which);
    if (!known) return CUDA_ERROR_INVALID_VALUE;
    *value = *known;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return for_device(device, [&]() -> CUresult {
    if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = 0;
    return CUDA_SUCCESS;
  });
}
