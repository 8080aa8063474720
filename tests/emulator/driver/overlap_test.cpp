#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/emulator/driver/session.h"

// Launches that may begin before the one before them has ended (programmatic dependent launch).

namespace {

constexpr std::string_view kWait = "griddepcontrol.wait;\n";
constexpr std::string_view kTrigger = "griddepcontrol.launch_dependents;\n";
constexpr std::string_view kRead = "ld.global.u32 %r2, [%rd1];\n";
constexpr std::string_view kWrite = "st.global.u32 [%rd2], %r2;\n";

/// A kernel (u32* from, u32* to) of these instructions, in order: kRead reads from[i], kWrite writes to[i],
/// i over the threads.
std::string kernel_text(std::string_view name, const std::vector<std::string_view>& steps) {
  std::string text = ".visible .entry " + std::string(name) + R"((.param .u64 from, .param .u64 to)
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [from];
  ld.param.u64 %rd2, [to];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, 7;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd1, %rd1, %rd3;
  add.s64 %rd2, %rd2, %rd3;
  setp.eq.u32 %p1, %r1, 0;
)";
  for (const std::string_view step : steps) text += step;
  return text + "ret;\n}\n";
}

/// A stream, and kernels that are launched in it.
class Chain {
 public:
  explicit Chain(CUstream stream = nullptr) : stream_(stream) {}

  /// Launches a kernel of these steps, which may overlap the launch before it or not.
  void plain(const std::vector<std::string_view>& steps, CUdeviceptr from, CUdeviceptr to) {
    launch(steps, from, to, false);
  }
  void overlapping(const std::vector<std::string_view>& steps, CUdeviceptr from, CUdeviceptr to) {
    launch(steps, from, to, true);
  }

 private:
  void launch(const std::vector<std::string_view>& steps, CUdeviceptr from, CUdeviceptr to, bool overlaps) {
    const std::string name = "kernel_" + std::to_string(++launches_);
    const std::string text = ".version 7.8\n.target sm_90\n.address_size 64\n" + kernel_text(name, steps);
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, text.c_str()) == CUDA_SUCCESS);
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = overlaps ? 1 : 0;
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 64;
    config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream_;
    config.attrs = &attribute;
    config.numAttrs = 1;
    void* parameters[] = {&from, &to};
    REQUIRE(cuLaunchKernelEx(&config, kernel(module, name.c_str()), parameters, nullptr) == CUDA_SUCCESS);
  }

  CUstream stream_;
  int launches_ = 0;
};

CUdeviceptr words() { return upload(std::vector<std::uint32_t>(64, 5)); }

/// Whether all that was launched went well; otherwise the report is that of a launch that was not awaited.
bool is_right() {
  const CUresult result = cuCtxSynchronize();
  if (result == CUDA_SUCCESS) return true;
  CHECK(result == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(std::string(emulatorLastReport()).starts_with("earlier launch not awaited: "));
  return false;
}

bool reports(std::string_view part) {
  return std::string_view(emulatorLastReport()).find(part) != std::string_view::npos;
}

/// Buffers of 64 words for the launches of a chain.
struct Buffers {
  const Session session;
  const CUdeviceptr x = words();
  const CUdeviceptr y = words();
  const CUdeviceptr other = words();
  Chain chain;
};

}  // namespace

TEST_CASE("a launch that overlaps and waits before it reads gets what the launch before it wrote") {
  Buffers own;
  auto& [session, x, y, z, chain] = own;
  chain.plain({kWrite}, x, y);
  chain.overlapping({kWait, kTrigger, kRead, kWrite}, y, z);
  chain.overlapping({kWait, kTrigger, kRead, kWrite}, z, x);
  REQUIRE(is_right());
  CHECK(download(x, 64) == std::vector<std::uint32_t>(64, 7));
}

TEST_CASE("what is read before the wait and written by the launch before it is reported with both kernels") {
  Buffers own;
  auto& [session, x, y, z, chain] = own;
  chain.plain({kWrite}, x, y);
  chain.overlapping({kRead, kWait, kWrite}, y, z);
  CHECK(!is_right());
  CHECK(reports("reads 4 bytes at 0x"));
  CHECK(
      reports("which the kernel kernel_1, launched before, may still write: the thread has not executed "
              "griddepcontrol.wait; kernel kernel_2, block (0,0,0), thread ("));
  CHECK(reports("ld.global.u32 %r2, [%rd1]; at PTX line 17"));
}

TEST_CASE("what is written before the wait and read or written by the launch before it is reported") {
  for (const bool reads : {true, false}) {
    CAPTURE(reads);
    Buffers own;
    auto& [session, x, y, other, chain] = own;
    chain.plain({reads ? kRead : kWrite}, x, x);
    chain.overlapping({kWrite, kWait}, y, x);
    CHECK(!is_right());
    CHECK(reports(reads ? "may still read" : "may still write"));
  }
}

TEST_CASE("what both only read, and other bytes of the same memory, may be accessed before the wait") {
  const Session session;
  const CUdeviceptr w = words();
  const CUdeviceptr y = upload(std::vector<std::uint32_t>(192, 5));
  Chain chain;
  chain.plain({kRead, kWrite}, w, y + 256);
  chain.overlapping({kRead, kWrite, kWait}, w, y);
  chain.overlapping({kRead, kWrite, kWait}, w, y + 512);
  CHECK(is_right());
}

TEST_CASE("a thread must wait itself: the wait of another one does not serve it") {
  Buffers own;
  auto& [session, x, y, other, chain] = own;
  chain.plain({kWrite}, x, y);
  chain.overlapping({"@%p1 griddepcontrol.wait;\n", "bar.sync 0;\n", kRead, kWait}, y, x);
  CHECK(!is_right());
  CHECK(!reports("thread (0,0,0)"));
}

TEST_CASE("a launch that ends without waiting leaves the one before it unfinished for the next") {
  for (const bool waits : {true, false}) {
    CAPTURE(waits);
    Buffers own;
    auto& [session, x, y, other, chain] = own;
    chain.plain({kWrite}, x, y);
    chain.overlapping({kRead, kWrite, waits ? kWait : ""}, other, other);
    chain.overlapping({kWait, kRead}, y, x);
    CHECK(is_right() == waits);
    if (!waits)
      CHECK(reports("which the kernel kernel_1, launched before, may still write: a launch between the two"));
  }
}

TEST_CASE("what one thread does not wait for is unfinished, although the others do") {
  Buffers own;
  auto& [session, x, y, other, chain] = own;
  chain.plain({kWrite}, x, y);
  chain.overlapping({"@!%p1 griddepcontrol.wait;\n", kTrigger}, other, other);
  chain.overlapping({kWait, kRead}, y, x);
  CHECK(!is_right());
}

TEST_CASE("a launch that lets its dependents begin before it waits leaves the one before it unfinished") {
  for (const bool early : {false, true}) {
    CAPTURE(early);
    Buffers own;
    auto& [session, x, y, other, chain] = own;
    chain.plain({kWrite}, x, y);
    if (early)
      chain.overlapping({kTrigger, kWait}, other, other);
    else
      chain.overlapping({kWait, kTrigger}, other, other);
    chain.overlapping({kRead, kWait}, y, x);
    CHECK(is_right() == !early);
  }
}

TEST_CASE("a dependent that waits for a launch that let it begin early may read what that one waited for") {
  Buffers own;
  auto& [session, x, y, other, chain] = own;
  chain.plain({kWrite}, x, y);
  chain.overlapping({kTrigger, kWait}, other, other);
  chain.overlapping({kWait, kRead}, y, x);
  CHECK(is_right());
}

TEST_CASE("several launches in a row that never wait are all unfinished for those after them") {
  Buffers own;
  auto& [session, x, y, other, chain] = own;
  chain.plain({kWrite}, x, y);
  for (int i = 0; i < 3; ++i) chain.overlapping({kTrigger}, other, other);
  chain.overlapping({kWait, kRead}, y, x);
  CHECK(!is_right());
  CHECK(reports("the kernel kernel_1"));
}

TEST_CASE("without the attribute, kernels that never wait follow one another") {
  Buffers own;
  auto& [session, x, y, other, chain] = own;
  chain.plain({kTrigger, kWrite}, x, y);
  chain.plain({kRead, kWrite}, y, x);
  chain.plain({kRead, kWait, kWrite}, x, y);
  CHECK(is_right());
}

TEST_CASE("whatever comes between two launches in the stream ends the first one") {
  CUevent event = nullptr;
  std::uint32_t word = 0;
  CUdeviceptr third = 0;
  CUstream stream = nullptr;
  const std::vector<std::pair<std::string, std::function<void(Chain&)>>> between = {
      {"a plain launch", [&](Chain& chain) { chain.plain({kRead}, third, third); }},
      {"cuCtxSynchronize", [&](Chain&) { CHECK(cuCtxSynchronize() == CUDA_SUCCESS); }},
      {"cuStreamSynchronize", [&](Chain&) { CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS); }},
      {"cuStreamQuery", [&](Chain&) { CHECK(cuStreamQuery(stream) == CUDA_SUCCESS); }},
      {"a copy", [&](Chain&) { CHECK(cuMemcpyDtoHAsync(&word, third, 4, stream) == CUDA_SUCCESS); }},
      {"a fill", [&](Chain&) { CHECK(cuMemsetD8Async(third, 0, 4, stream) == CUDA_SUCCESS); }},
      {"an event", [&](Chain&) { CHECK(cuEventRecord(event, stream) == CUDA_SUCCESS); }},
      {"another stream's event", [&](Chain&) { CHECK(cuStreamWaitEvent(stream, event, 0) == CUDA_SUCCESS); }},
      {"the legacy stream", [&](Chain&) { Chain().plain({kRead}, third, third); }},
      {"nothing", [](Chain&) {}},
  };
  for (const auto& [what, act] : between) {
    CAPTURE(what);
    const Session session;
    REQUIRE(cuEventCreate(&event, CU_EVENT_DEFAULT) == CUDA_SUCCESS);
    REQUIRE(cuStreamCreate(&stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
    const CUdeviceptr x = words();
    const CUdeviceptr y = words();
    third = words();
    Chain chain(stream);
    chain.plain({kWrite}, x, y);
    act(chain);
    chain.overlapping({kRead, kWait}, y, x);
    CHECK(is_right() == (what != "nothing"));
  }
}

TEST_CASE("launches of two streams are independent") {
  const Session session;
  CUstream streams[2] = {};
  for (CUstream& stream : streams) REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  const CUdeviceptr x = words();
  const CUdeviceptr y = words();
  Chain one(streams[0]);
  Chain other(streams[1]);
  one.plain({kWrite}, x, y);
  other.overlapping({kRead}, y, x);  // nothing before it in its stream
  CHECK(is_right());
  one.plain({kWrite}, x, y);
  other.plain({kRead}, x, x);
  one.overlapping({kRead}, y, x);  // a launch of another stream between the two ends nothing
  CHECK(!is_right());
}

TEST_CASE("a graph keeps which launches overlap, and overlaps no launch outside it") {
  for (const bool waits : {true, false}) {
    CAPTURE(waits);
    const Session session;
    CUstream stream = nullptr;
    REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    const CUdeviceptr x = words();
    const CUdeviceptr y = words();
    Chain chain(stream);
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    chain.overlapping({kWrite}, x, y);
    chain.overlapping({waits ? kWait : "", kRead, kWait}, y, x);
    const CUgraphExec graph = end_capture(stream);
    REQUIRE(is_right());
    REQUIRE(cuGraphLaunch(graph, stream) == CUDA_SUCCESS);
    if (waits) {
      chain.overlapping({kRead, kWrite}, y, x);  // follows the whole graph
      REQUIRE(cuGraphLaunch(graph, stream) == CUDA_SUCCESS);
    }
    CHECK(cuGraphExecDestroy(graph) == CUDA_SUCCESS);
    CHECK(is_right() == waits);
  }
}

TEST_CASE("a captured launch that depends on two others overlaps neither") {
  const Session session;
  CUstream streams[2] = {};
  CUevent events[2] = {};
  for (int i = 0; i < 2; ++i) {
    REQUIRE(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  }
  const CUdeviceptr x = words();
  const CUdeviceptr y = words();
  Chain one(streams[0]);
  Chain other(streams[1]);
  REQUIRE(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(events[0], streams[0]) == CUDA_SUCCESS);
  REQUIRE(cuStreamWaitEvent(streams[1], events[0], 0) == CUDA_SUCCESS);
  one.plain({kWrite}, x, y);
  other.plain({kRead}, x, x);
  REQUIRE(cuEventRecord(events[1], streams[1]) == CUDA_SUCCESS);
  REQUIRE(cuStreamWaitEvent(streams[0], events[1], 0) == CUDA_SUCCESS);
  one.overlapping({kRead}, y, x);
  const CUgraphExec graph = end_capture(streams[0]);
  REQUIRE(cuGraphLaunch(graph, streams[0]) == CUDA_SUCCESS);
  CHECK(cuGraphExecDestroy(graph) == CUDA_SUCCESS);
  CHECK(is_right());
}

TEST_CASE("an asynchronous copy that is issued before the wait reads what may still be written") {
  const Session session;
  const CUdeviceptr x = words();
  const CUdeviceptr y = words();
  constexpr std::string_view kCopy =
      ".shared .align 16 .b8 stage[256];\nmov.u32 %r3, stage;\nmad.lo.u32 %r3, %r1, 4, %r3;\n"
      "cp.async.ca.shared.global [%r3], [%rd1], 4;\n";
  Chain chain;
  chain.plain({kWrite}, x, y);
  chain.overlapping({kWait, kCopy, "cp.async.wait_all;\n"}, y, x);
  REQUIRE(is_right());
  chain.plain({kWrite}, x, y);
  chain.overlapping({kCopy, kWait, "cp.async.wait_all;\n"}, y, x);
  CHECK(!is_right());
}

TEST_CASE("griddepcontrol is refused on devices before sm_90") {
  const Session session;
  const std::string text = ".version 7.8\n.target sm_80\n.address_size 64\n" + kernel_text("early", {kWait});
  CUmodule module = nullptr;
  CHECK(cuModuleLoadData(&module, text.c_str()) == CUDA_ERROR_INVALID_PTX);
}
