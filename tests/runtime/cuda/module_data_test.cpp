#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <cuda.h>
#include <doctest/doctest.h>

#include "runtime/cuda/device.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/stream.h"
#include "tests/runtime/cuda/stub_session.h"

using namespace sparsekiln;

namespace {

std::vector<std::byte> filled(std::size_t bytes, int filling) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(filling));
}

/// The stub's kernel with two tables beside its code.
Binary binary_with_data(int filling = 7) {
  Binary binary = stub_binary();
  binary.code =
      code_of("cubin sm_90\nkernel forward 8 8 8 8 4 8 8\nvariable steps_0 64\nvariable rows_0 16\n");
  binary.ptx =
      ".version 8.0\n.target sm_75\n// kernel forward 8 8 8 8 4 8 8\n// variable steps_0 64\n"
      "// variable rows_0 16\n";
  binary.data = {{"steps_0", filled(64, filling)}, {"rows_0", filled(16, filling + 1)}};
  return binary;
}

std::size_t count(const std::string& name) {
  const std::vector<std::string> calls = stub::calls();
  return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), name));
}

}  // namespace

TEST_CASE("the data of a Binary is written to the variables of its module when it is loaded") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  for (const bool from_ptx : {false, true}) {
    CAPTURE(from_ptx);
    Binary binary = binary_with_data();
    if (from_ptx) binary.code.clear();
    const auto module = device->load(shared(binary));
    CHECK(stub::variable("steps_0") == filled(64, 7));
    CHECK(stub::variable("rows_0") == filled(16, 8));
    stub::record();
    Launch launch;
    launch.n = 1;
    module->launch(0, launch);
    CHECK(stub::calls() == std::vector<std::string>{"cuLaunchKernel"});
    stub::reset();
  }
}

TEST_CASE("two modules of the same code have data of their own") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const auto first = device->load(shared(binary_with_data(7)));
  const std::vector<std::byte>* const of_first = &stub::variable("steps_0");
  const auto second = device->load(shared(binary_with_data(9)));
  CHECK(*of_first == filled(64, 7));
  CHECK(stub::variable("steps_0") == filled(64, 9));
}

TEST_CASE("data that does not fit the code is refused in a sentence, and the code is unloaded") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const std::size_t modules = stub::live_modules();
  Binary larger = binary_with_data();
  larger.data[0].bytes.resize(80);
  auto error = error_of([&] { static_cast<void>(device->load(shared(larger))); });
  CHECK(says(
      error,
      "a binary is damaged: it has 80 bytes for the variable steps_0, and its code has 64 there; compile "
      "the kernel again"));
  CHECK(error->kind() == ErrorKind::cache);
  Binary other = binary_with_data();
  other.data[1].symbol = "columns_0";
  error = error_of([&] { static_cast<void>(device->load(shared(other))); });
  CHECK(says(error, "16 bytes for the variable columns_0, and its code has none of that name"));
  CHECK(stub::live_modules() == modules);
}

TEST_CASE("data that cannot be uploaded is an Error that says so, and the code is unloaded") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const std::size_t modules = stub::live_modules();
  for (const char* function : {"cuStreamCreate", "cuMemcpyHtoDAsync", "cuStreamSynchronize"}) {
    CAPTURE(function);
    stub::fail_next(function, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(says(error_of([&] { static_cast<void>(device->load(shared(binary_with_data()))); }),
               "a kernel's tables"));
    CHECK(stub::live_modules() == modules);
  }
  stub::fail_next("cuModuleGetGlobal", CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(says(error_of([&] { static_cast<void>(device->load(shared(binary_with_data()))); }),
             "looking for the variable steps_0"));
  CHECK(stub::live_modules() == modules);
}

TEST_CASE("a kernel with data is loaded while a stream is captured") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  const cuda::Stream stream;
  stub::record();
  stream.begin_capture();
  const auto module = device->load(shared(binary_with_data()));
  static_cast<void>(stream.end_capture());
  CHECK(stub::variable("steps_0") == filled(64, 7));
  // Nothing on the stream that waits for those that are captured.
  CHECK(count("cuMemcpyHtoD") == 0);
}

TEST_CASE("a kernel without data asks for no variable and makes no stream") {
  const StubSession session;
  const auto device = cuda::open_device(0);
  stub::record();
  static_cast<void>(device->load(shared(stub_binary())));
  CHECK(count("cuModuleGetGlobal") == 0);
  CHECK(count("cuStreamCreate") == 0);
}
