#include "runtime/cuda/driver.h"

#include <algorithm>

#include <doctest/doctest.h>

#include <sparsekiln/error.h>

#include "runtime/cuda/device_info.h"
#include "tests/runtime/cuda/stub_session.h"

using namespace sparsekiln;
using namespace sparsekiln::cuda;

TEST_CASE(
    "a driver that is not there is named in one sentence, with the loader's reason and what works without") {
  const ScopedVariable driver("SPARSEKILN_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  const auto error = error_of([] { static_cast<void>(Driver::find()); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::driver);
  CHECK(says(error,
             "no CUDA driver: SPARSEKILN_CUDA_DRIVER=/nowhere/libcuda.so.1 could not be loaded (/nowhere/"));
  CHECK(says(error, "No such file or directory"));
  CHECK(says(error, "the cpu target works without one"));
}

TEST_CASE("without a driver, nothing is available and doctor's report says why") {
  const ScopedVariable driver("SPARSEKILN_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  CHECK_FALSE(available());
  CHECK(machine_toolchain().driver_version == 0);
  const DriverReport report = report_driver();
  CHECK_FALSE(report.found);
  CHECK(report.failure.find("/nowhere/libcuda.so.1") != std::string::npos);
  CHECK(report.devices.empty());
}

TEST_CASE("a library that is no CUDA driver is refused") {
  const ScopedVariable driver("SPARSEKILN_CUDA_DRIVER", "libm.so.6");
  const auto error = error_of([] { static_cast<void>(Driver::find()); });
  CHECK(says(error, "SPARSEKILN_CUDA_DRIVER=libm.so.6 has no cuGetProcAddress"));
}

TEST_CASE("every function is asked for once, at the version in the table, and none by another way") {
  const StubSession session(true);
  const auto driver = Driver::find();
  auto asked = stub::asked();
  std::vector<std::pair<std::string, int>> table;
  for (const DriverSymbol& symbol : driver_symbols()) table.emplace_back(symbol.name, symbol.version);
  CHECK(asked == table);
  const auto asked_for = [&](const char* name, int version) {
    return std::count(asked.begin(), asked.end(), std::pair<std::string, int>(name, version)) == 1;
  };
  // Interfaces that differ by version: 64-bit sizes, and the release that no longer destroys others'
  // contexts.
  CHECK(asked_for("cuMemAlloc", 3020));
  CHECK(asked_for("cuCtxPushCurrent", 4000));
  CHECK(asked_for("cuDevicePrimaryCtxRelease", 11000));
  CHECK(asked_for("cuLaunchKernel", 4000));
}

TEST_CASE("every row of the table fills a member of its own") {
  DriverApi api;
  auto* words = reinterpret_cast<void**>(&api);
  static_assert(sizeof(DriverApi) % sizeof(void*) == 0);
  REQUIRE(driver_symbols().size() == sizeof(DriverApi) / sizeof(void*));
  std::size_t row = 0;
  for (const DriverSymbol& symbol : driver_symbols()) {
    CAPTURE(symbol.name);
    symbol.store(api, &api);
    CHECK(words[row++] == &api);
  }
}

TEST_CASE("a driver without a required function is refused by the function's name and version") {
  const StubSession session(true);
  stub::hide("cuGraphInstantiateWithFlags");
  const auto error = error_of([] { static_cast<void>(Driver::find()); });
  CHECK(says(error,
             "(CUDA 13.0) has no cuGraphInstantiateWithFlags of CUDA 11.4; CUDA 11.4 or later is needed"));
}

TEST_CASE("a CUDA 11.8 driver serves, without the functions that came later") {
  const StubSession session(true);
  stub::set_version(11080);
  const auto driver = Driver::find();
  CHECK(driver->version() == 11080);
  CHECK(machine_toolchain().driver_version == 11080);
  CHECK_FALSE(static_cast<bool>(driver->api().func_load));
  CHECK_FALSE(static_cast<bool>(driver->api().stream_get_id));
  CHECK_FALSE(static_cast<bool>(driver->api().tensor_map_encode_tiled));
  CHECK(static_cast<bool>(driver->api().launch_kernel));
}

TEST_CASE(
    "a driver that cannot initialise says what cuInit answered, and says it again without another attempt") {
  const StubSession session(true);
  stub::fail_next("cuInit", CUDA_ERROR_NO_DEVICE);
  for (int time = 0; time < 2; ++time) {
    const auto error = error_of([] { static_cast<void>(Driver::find()); });
    CHECK(says(error, "cuInit answers CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"));
    CHECK(says(error, "the cpu target works without one"));
  }
  CHECK_FALSE(available());
}

TEST_CASE("a driver is loaded once") {
  const StubSession session;
  CHECK(Driver::find() == Driver::find());
  CHECK(available());
}

TEST_CASE(
    "a failing call becomes an Error with what was asked, the driver's name and text for it, and a remedy") {
  const StubSession session;
  const auto driver = Driver::find();
  const auto error = error_of([&] { driver->check(CUDA_ERROR_OUT_OF_MEMORY, "allocating 5 bytes"); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::driver);
  CHECK(std::string(error->what()) ==
        "allocating 5 bytes: CUDA_ERROR_OUT_OF_MEMORY: out of memory; release device memory, or ask for a "
        "smaller "
        "batch");
  CHECK(driver->describe(static_cast<CUresult>(998)) == "CUDA error 998");
  CHECK_NOTHROW(driver->check(CUDA_SUCCESS, "nothing"));
}

TEST_CASE("doctor's report lists the driver and each device") {
  const StubSession session;
  const DriverReport report = report_driver();
  REQUIRE(report.found);
  CHECK(report.path == stub::path());
  CHECK(report.version == 13000);
  REQUIRE(report.devices.size() == 2);
  CHECK(report.devices[0].name == "Stub H100");
  CHECK(report.devices[0].pci_bus_id == "0000:65:00.0");
  CHECK(report.devices[0].compute_capability == 90);
  CHECK(report.devices[0].multiprocessors == 132);
  CHECK(report.devices[0].memory_bytes == std::int64_t{80} << 30);
  CHECK(report.devices[0].l2_bytes == 50 << 20);
  CHECK(report.devices[0].clock_khz == 1980000);
  CHECK(report.devices[0].memory_clock_khz == 0);  // the stub does not know it, and that is no failure
  CHECK(report.devices[1].compute_capability == 75);
  CHECK(report.devices[1].pci_bus_id == "0000:b3:00.0");
}

TEST_CASE("a driver that does not say where on the bus a device is serves without") {
  const StubSession session;
  stub::fail_next("cuDeviceGetPCIBusId", CUDA_ERROR_INVALID_VALUE);
  const DeviceInfo info = device_info(*Driver::find(), 0);
  CHECK(info.pci_bus_id.empty());
  CHECK(info.name == "Stub H100");
}

TEST_CASE("the current context is the thread's, and none where there is no driver") {
  const StubSession session;
  CHECK(current_context() == nullptr);
  void* const context = stub::create_context(0);
  stub::set_current(context);
  CHECK(static_cast<void*>(current_context()) == context);
  const ScopedVariable driver("SPARSEKILN_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  CHECK(current_context() == nullptr);
}
