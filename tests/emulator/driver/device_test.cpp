#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "tests/emulator/driver/session.h"

namespace {

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = -1;
  REQUIRE(cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS);
  return value;
}

}  // namespace

TEST_CASE("there is a device for each architecture, sm_90 first, with the attributes of a real part") {
  const Session session;
  int count = 0;
  REQUIRE(cuDeviceGetCount(&count) == CUDA_SUCCESS);
  std::set<int> architectures;
  for (CUdevice device = 0; device < count; ++device) {
    const int capability = 10 * attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                           attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    architectures.insert(capability);
    char name[64] = {};
    REQUIRE(cuDeviceGetName(name, sizeof name, device) == CUDA_SUCCESS);
    CHECK(std::string(name) == "Sparsekiln emulator (sm_" + std::to_string(capability) + ")");
  }
  CHECK(architectures == std::set<int>{75, 80, 86, 89, 90, 100, 120});
  CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == 9);
  CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == 132);
  CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) == 227 * 1024);
  CHECK(attribute(0, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) == 50 << 20);
  std::size_t bytes = 0;
  CHECK(cuDeviceTotalMem(&bytes, 0) == CUDA_SUCCESS);
  CHECK(bytes == std::size_t{80} << 30);
}

TEST_CASE("unknown attributes and missing devices are refused") {
  const Session session;
  int value = 0;
  CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, -1) == CUDA_ERROR_INVALID_DEVICE);
  CUdevice device = 0;
  CHECK(cuDeviceGet(&device, 99) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(cuDeviceGet(nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDeviceGetCount(nullptr) == CUDA_ERROR_INVALID_VALUE);
  char name[4];
  CHECK(cuDeviceGetName(name, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuDeviceGetName(name, sizeof name, 0) == CUDA_SUCCESS);
  CHECK(std::strlen(name) == 3);
}

TEST_CASE("a device is found by its bus id, and by no other text") {
  const Session session;
  char id[16] = {};
  REQUIRE(cuDeviceGetPCIBusId(id, sizeof id, 2) == CUDA_SUCCESS);
  CUdevice device = -1;
  CHECK(cuDeviceGetByPCIBusId(&device, id) == CUDA_SUCCESS);
  CHECK(device == 2);
  CHECK(cuDeviceGetByPCIBusId(&device, "0000:65:00.0") == CUDA_ERROR_INVALID_DEVICE);
  CHECK(cuDeviceGetPCIBusId(id, 4, 2) == CUDA_ERROR_INVALID_VALUE);
  CUuuid first{};
  CUuuid second{};
  CHECK(cuDeviceGetUuid(&first, 0) == CUDA_SUCCESS);
  CHECK(cuDeviceGetUuid(&second, 1) == CUDA_SUCCESS);
  CHECK(std::memcmp(first.bytes, second.bytes, sizeof first.bytes) != 0);
}

TEST_CASE("a primary context lives while it is retained, and is the same one for all who retain it") {
  const Session session;
  unsigned flags = 7;
  int active = -1;
  CHECK(cuDevicePrimaryCtxGetState(1, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 0);
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  REQUIRE(cuDevicePrimaryCtxRetain(&first, 1) == CUDA_SUCCESS);
  REQUIRE(cuDevicePrimaryCtxRetain(&second, 1) == CUDA_SUCCESS);
  CHECK(first == second);
  CHECK(first != session.context());
  CHECK(cuDevicePrimaryCtxRelease(1) == CUDA_SUCCESS);
  CHECK(cuDevicePrimaryCtxGetState(1, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 1);
  CHECK(cuDevicePrimaryCtxRelease(1) == CUDA_SUCCESS);
  CHECK(cuDevicePrimaryCtxRelease(1) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuCtxSetCurrent(first) == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("each thread has a stack of contexts of its own") {
  const Session session;
  CUcontext current = session.context();
  std::thread([&] {
    CHECK(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    CHECK(current == nullptr);
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 4) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuCtxPopCurrent(&current) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuCtxPushCurrent(session.context()) == CUDA_SUCCESS);
    CHECK(cuMemAlloc(&memory, 4) == CUDA_SUCCESS);
    CHECK(cuCtxPopCurrent(&current) == CUDA_SUCCESS);
    CHECK(current == session.context());
  }).join();
  CHECK(cuCtxPushCurrent(nullptr) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuCtxPushCurrent(reinterpret_cast<CUcontext>(0x1234)) == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("a kernel of one context is invalid in another, also on the same device") {
  const Session session;
  const CUfunction nothing = kernel(load_test_ptx(), "nothing");
  CUcontext other = nullptr;
#if CUDA_VERSION >= 13000
  REQUIRE(cuCtxCreate(&other, nullptr, 0, session.device()) == CUDA_SUCCESS);
#else
  REQUIRE(cuCtxCreate(&other, 0, session.device()) == CUDA_SUCCESS);
#endif
  int value = 0;
  CHECK(launch_plain(nothing) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, nothing) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuCtxDestroy(other) == CUDA_SUCCESS);
  CHECK(launch_plain(nothing) == CUDA_SUCCESS);
}

TEST_CASE("a created context is current, and its objects are destroyed with it") {
  const Session session;
  const EmulatorHeld before = emulatorHeld();
  CUcontext made = nullptr;
#if CUDA_VERSION >= 13000
  REQUIRE(cuCtxCreate(&made, nullptr, 0, 2) == CUDA_SUCCESS);
#else
  REQUIRE(cuCtxCreate(&made, 0, 2) == CUDA_SUCCESS);
#endif
  CUdevice device = -1;
  CHECK(cuCtxGetDevice(&device) == CUDA_SUCCESS);
  CHECK(device == 2);
  static_cast<void>(upload({1, 2, 3}));
  static_cast<void>(load_test_ptx());
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CHECK(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
  CHECK(cuEventCreate(&event, 0) == CUDA_SUCCESS);
  CHECK(emulatorHeld().allocations == before.allocations + 1);
  CHECK(cuCtxDestroy(made) == CUDA_SUCCESS);
  CHECK(cuCtxDestroy(made) == CUDA_ERROR_INVALID_CONTEXT);
  const EmulatorHeld after = emulatorHeld();
  CHECK(after.allocations == before.allocations);
  CHECK(after.modules == before.modules);
  CHECK(after.streams == before.streams);
  CHECK(after.events == before.events);
  CUcontext current = nullptr;
  CHECK(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
  CHECK(current == session.context());
  CHECK(cuCtxDestroy(session.context()) == CUDA_ERROR_INVALID_CONTEXT);  // a primary one is released
}

TEST_CASE(
    "a reset primary context is destroyed for threads that have it current, until it is retained again") {
  const Session session;
  const CUdeviceptr memory = upload({1});
  REQUIRE(cuDevicePrimaryCtxReset(session.device()) == CUDA_SUCCESS);
  CHECK(cuMemFree(memory) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CUcontext again = nullptr;
  REQUIRE(cuDevicePrimaryCtxRetain(&again, session.device()) == CUDA_SUCCESS);
  CHECK(again == session.context());
  CHECK(cuMemFree(memory) == CUDA_ERROR_INVALID_VALUE);  // it went with the old one
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(cuDevicePrimaryCtxRelease(session.device()) == CUDA_SUCCESS);
}

TEST_CASE("every CUresult has the name that cuda.h gives it, and a text") {
  const char* text = nullptr;
  const struct {
    CUresult result;
    const char* name;
  } kSome[] = {{CUDA_SUCCESS, "CUDA_SUCCESS"},
               {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
               {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
               {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX"},
               {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
               {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
               {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"}};
  for (const auto& some : kSome) {
    CHECK(cuGetErrorName(some.result, &text) == CUDA_SUCCESS);
    CHECK(std::string(text) == some.name);
    CHECK(cuGetErrorString(some.result, &text) == CUDA_SUCCESS);
    CHECK(std::strlen(text) > 5);
  }
  CHECK(cuGetErrorName(static_cast<CUresult>(998), &text) == CUDA_ERROR_INVALID_VALUE);
  CHECK(text == nullptr);
  CHECK(cuGetErrorString(static_cast<CUresult>(997), &text) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGetErrorName(CUDA_SUCCESS, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("cuInit takes no flags") {
  CHECK(cuInit(1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuInit(0) == CUDA_SUCCESS);
  int version = 0;
  CHECK(cuDriverGetVersion(&version) == CUDA_SUCCESS);
  CHECK(version == 13000);
}
