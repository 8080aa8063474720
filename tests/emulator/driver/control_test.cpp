#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/emulator/driver/session.h"

namespace {

struct Line {
  std::string kernel, instruction, kind;
  unsigned ptx_line;
  std::uint64_t executed, global_sectors, global_bytes, divergent;
};

std::vector<Line> counters() {
  std::vector<Line> lines;
  const auto keep = [](const EmulatorLine* line, void* with) {
    static_cast<std::vector<Line>*>(with)->push_back({line->kernel, line->instruction, line->kind,
                                                      line->ptx_line, line->executed, line->global_sectors,
                                                      line->global_bytes, line->divergent});
  };
  emulatorCounters(keep, &lines);
  return lines;
}

const Line* find(const std::vector<Line>& lines, const std::string& words) {
  for (const Line& line : lines)
    if (line.instruction.find(words) != std::string::npos) return &line;
  return nullptr;
}

}  // namespace

TEST_CASE("each kind of call can fail on purpose, once, at the requested call, and then does nothing") {
  const Session session;
  const CUfunction add_one = kernel(load_test_ptx(), "add_one");
  const CUdeviceptr memory = upload({1});
  CUdeviceptr more = 0;
  CUmodule module = nullptr;
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, 0) == CUDA_SUCCESS);

  emulatorFailCall(EMULATOR_FAULT_ALLOCATE, 2, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc(&more, 4) == CUDA_SUCCESS);
  CHECK(cuMemAlloc(&more, 4) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(cuMemAlloc(&more, 4) == CUDA_SUCCESS);

  emulatorFailCall(EMULATOR_FAULT_LOAD, 1, CUDA_ERROR_INVALID_IMAGE);
  const std::size_t modules = emulatorHeld().modules;
  CHECK(cuModuleLoadData(&module, test_ptx().c_str()) == CUDA_ERROR_INVALID_IMAGE);
  CHECK(emulatorHeld().modules == modules);
  CHECK(cuModuleLoadData(&module, test_ptx().c_str()) == CUDA_SUCCESS);

  emulatorFailCall(EMULATOR_FAULT_LAUNCH, 3, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  CHECK(launch_add_one(add_one, memory, 1) == CUDA_SUCCESS);
  CHECK(launch_add_one(add_one, memory, 1) == CUDA_SUCCESS);
  CHECK(launch_add_one(add_one, memory, 1) == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  CHECK(download(memory, 1) == std::vector<std::uint32_t>{3});

  emulatorFailCall(EMULATOR_FAULT_SYNCHRONIZE, 3, CUDA_ERROR_LAUNCH_FAILED);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(nullptr) == CUDA_SUCCESS);
  CHECK(cuEventSynchronize(event) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);  // it was the call that failed, not the context

  emulatorFailCall(EMULATOR_FAULT_COPY, 2, CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuMemsetD8(memory, 0, 1) == CUDA_SUCCESS);
  CHECK(cuMemsetD32(memory, 9, 1) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(download(memory, 1) == std::vector<std::uint32_t>{0});

  emulatorFailCall(EMULATOR_FAULT_COPY, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
  emulatorFailCall(EMULATOR_FAULT_COPY, 0, CUDA_SUCCESS);
  CHECK(cuMemsetD8(memory, 0, 1) == CUDA_SUCCESS);
  emulatorFailCall(-1, 1, CUDA_ERROR_UNKNOWN);
  emulatorFailCall(EMULATOR_FAULT_KINDS, 1, CUDA_ERROR_UNKNOWN);
}

TEST_CASE("counters say what each instruction of a kernel did, and start from zero after a reset") {
  const Session session;
  const CUfunction add_one = kernel(load_test_ptx(), "add_one");
  const CUdeviceptr memory = upload(std::vector<std::uint32_t>(64, 0));
  emulatorResetCounters();
  REQUIRE(launch_add_one(add_one, memory, 40) == CUDA_SUCCESS);  // two warps; the second branches apart
  const std::vector<Line> lines = counters();
  const Line* const load = find(lines, "ld.global.u32");
  REQUIRE(load != nullptr);
  CHECK(load->kernel == "add_one");
  CHECK(load->instruction == "ld.global.u32 %r5, [%rd3];");
  CHECK(load->ptx_line == 26);
  CHECK(load->executed == 2);
  CHECK(load->global_bytes == 160);
  CHECK(load->global_sectors == 5);
  const Line* const branch = find(lines, "bra DONE");
  REQUIRE(branch != nullptr);
  CHECK(branch->executed == 2);
  CHECK(branch->divergent == 1);
  for (std::size_t i = 1; i < lines.size(); ++i) CHECK(lines[i - 1].ptx_line <= lines[i].ptx_line);

  REQUIRE(launch_add_one(add_one, memory, 40) == CUDA_SUCCESS);
  CHECK(find(counters(), "ld.global.u32")->executed == 4);
  // The same text loaded again is the same kernel.
  REQUIRE(launch_add_one(kernel(load_test_ptx(), "add_one"), memory, 40) == CUDA_SUCCESS);
  CHECK(find(counters(), "ld.global.u32")->executed == 6);
  emulatorResetCounters();
  CHECK(counters().empty());
  emulatorCounters(nullptr, nullptr);
}

TEST_CASE("the counters of the 64 unloaded kernels that ran last are kept") {
  const Session session;
  emulatorResetCounters();
  const CUmodule kept = load_test_ptx();
  REQUIRE(launch_plain(kernel(kept, "nothing")) == CUDA_SUCCESS);
  for (int i = 0; i < 70; ++i) {
    CUmodule module = nullptr;
    const std::string name = "k" + std::to_string(i);
    const std::string text =
        ".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry " + name + "() { ret; }\n";
    REQUIRE(cuModuleLoadData(&module, text.c_str()) == CUDA_SUCCESS);
    REQUIRE(launch_plain(kernel(module, name.c_str())) == CUDA_SUCCESS);
    REQUIRE(cuModuleUnload(module) == CUDA_SUCCESS);
  }
  std::set<std::string> names;
  for (const Line& line : counters()) names.insert(line.kernel);
  CHECK(names.size() == 65);
  CHECK(names.contains("nothing"));
  CHECK(names.contains("k69"));
  CHECK(names.contains("k6"));
  CHECK_FALSE(names.contains("k5"));
  emulatorResetCounters();
}

TEST_CASE("objects are counted while they exist") {
  const Session session;
  const EmulatorHeld before = emulatorHeld();
  CUmodule module = load_test_ptx();
  const CUdeviceptr memory = upload({1});
  CUstream stream = nullptr;
  CUevent event = nullptr;
  REQUIRE(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&event, 0) == CUDA_SUCCESS);
  const EmulatorHeld held = emulatorHeld();
  CHECK(held.allocations == before.allocations + 1);  // a module's variables are the module's
  CHECK(held.modules == before.modules + 1);
  CHECK(held.streams == before.streams + 1);
  CHECK(held.events == before.events + 1);
  CHECK(cuModuleUnload(module) == CUDA_SUCCESS);
  CHECK(cuMemFree(memory) == CUDA_SUCCESS);
  CHECK(cuStreamDestroy(stream) == CUDA_SUCCESS);
  CHECK(cuEventDestroy(event) == CUDA_SUCCESS);
  const EmulatorHeld after = emulatorHeld();
  CHECK(after.allocations == before.allocations);
  CHECK(after.modules == before.modules);
  CHECK(after.streams == before.streams);
  CHECK(after.events == before.events);
}

TEST_CASE("reads of unwritten memory are detected unless that is switched off") {
  const std::string load_only = R"(.version 7.8
.target sm_75
.address_size 64
.visible .entry reads(.param .u64 p) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [p];
  ld.global.u32 %r1, [%rd1];
  st.global.u32 [%rd1+4], %r1;
  ret;
}
)";
  for (const unsigned checks : {unsigned{EMULATOR_CHECK_ALL}, unsigned{EMULATOR_CHECK_RACES}}) {
    const Session session;
    emulatorSetChecks(checks);
    CHECK(emulatorChecks() == checks);
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, load_only.c_str()) == CUDA_SUCCESS);
    CUdeviceptr memory = 0;
    REQUIRE(cuMemAlloc(&memory, 8) == CUDA_SUCCESS);
    void* parameters[] = {&memory};
    CHECK(cuLaunchKernel(kernel(module, "reads"), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) ==
          CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == (checks == EMULATOR_CHECK_ALL ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS));
    emulatorSetChecks(EMULATOR_CHECK_ALL);
  }
}

TEST_CASE("the seed is what was set last") {
  const std::uint64_t before = emulatorSeed();
  emulatorSetSeed(0xfeedbeef12345678u);
  CHECK(emulatorSeed() == 0xfeedbeef12345678u);
  emulatorSetSeed(before);
}
