#include <doctest/doctest.h>

#include <dlfcn.h>

#include <string>
#include <string_view>

#include <cuda.h>

#include "emulator/control.h"
#include "runtime/cuda/driver_api.h"

namespace {

struct Answer {
  CUresult result = CUDA_SUCCESS;
  void* address = nullptr;
  CUdriverProcAddressQueryResult status{};
};

Answer ask(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT) {
  Answer answer;
  answer.address = &answer;
  answer.result = cuGetProcAddress(name, &answer.address, version, flags, &answer.status);
  return answer;
}

void* exported(const char* name) { return dlsym(RTLD_DEFAULT, name); }

}  // namespace

TEST_CASE("every function that the runtime needs is returned for its version") {
  for (const sparsekiln::cuda::DriverSymbol& symbol : sparsekiln::cuda::driver_symbols()) {
    CAPTURE(symbol.name);
    const Answer answer = ask(symbol.name, symbol.version, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    CHECK(answer.result == CUDA_SUCCESS);
    CHECK(answer.address != nullptr);
    CHECK(answer.status == CU_GET_PROC_ADDRESS_SUCCESS);
  }
}

TEST_CASE("a name gives the newest interface that is not newer than the requested version") {
  CHECK(ask("cuMemAlloc", 3020).address == exported("cuMemAlloc_v2"));
  CHECK(ask("cuMemAlloc", 13000).address == exported("cuMemAlloc_v2"));
  CHECK(ask("cuEventElapsedTime", 12070).address == exported("cuEventElapsedTime"));
  CHECK(ask("cuEventElapsedTime", 12080).address == exported("cuEventElapsedTime_v2"));
  CHECK(ask("cuGetProcAddress", 11030).address == exported("cuGetProcAddress"));
  CHECK(ask("cuGetProcAddress", 12000).address == exported("cuGetProcAddress_v2"));
  CHECK(ask("cuLaunchKernel", 4000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM).address ==
        exported("cuLaunchKernel"));
  CHECK(ask("emulatorSetSeed", 1000).address == exported("emulatorSetSeed"));
}

TEST_CASE("there is no interface below its first version") {
  for (const auto& [name, version] : {std::pair{"cuMemAlloc", 2000},
                                      {"cuDevicePrimaryCtxRelease", 7000},
                                      {"cuStreamBeginCapture", 10000},
                                      {"cuGetErrorName", 5050},
                                      {"cuFuncLoad", 12030},
                                      {"cuLaunchKernel", 3020}}) {
    CAPTURE(name);
    const Answer answer = ask(name, version);
    CHECK(answer.result == CUDA_ERROR_NOT_FOUND);
    CHECK(answer.address == nullptr);
    CHECK(answer.status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  }
}

TEST_CASE("missing functions are not found, with a suffix or without") {
  for (const char* name : {"cuMemAlloc_v2", "cuFrobnicate", "", "emulatorFrobnicate"}) {
    CAPTURE(name);
    const Answer answer = ask(name, 13000);
    CHECK(answer.result == CUDA_ERROR_NOT_FOUND);
    CHECK(answer.address == nullptr);
    CHECK(answer.status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  }
  void* address = nullptr;
  CHECK(cuGetProcAddress(nullptr, &address, 13000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGetProcAddress("cuInit", nullptr, 13000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGetProcAddress("cuInit", &address, 13000, 64, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGetProcAddress("cuInit", &address, 13000, 0, nullptr) == CUDA_SUCCESS);
}

TEST_CASE("the first form of cuGetProcAddress serves callers of CUDA 11") {
  const auto first = reinterpret_cast<PFN_cuGetProcAddress_v11030>(exported("cuGetProcAddress"));
  REQUIRE(static_cast<bool>(first));
  void* address = nullptr;
  CHECK(first("cuInit", &address, 11040, CU_GET_PROC_ADDRESS_DEFAULT) == CUDA_SUCCESS);
  CHECK(address == exported("cuInit"));
  CHECK(first("cuFrobnicate", &address, 11040, CU_GET_PROC_ADDRESS_DEFAULT) == CUDA_ERROR_NOT_FOUND);
}
