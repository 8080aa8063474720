/// What it costs to come to a kernel, and to launch it: the headline layer (12288 wide, block 32, 90 %
/// sparse).
///
/// `cold` and `store` run in a process of their own each time, as a user meets them: NVRTC is loaded, nothing
/// is warm. What is timed is the time inside `build` (`compile_ms`). `memory` is a `compile` in a process
/// that holds the same kernel already. `launch` is a launch on the driver made for the tests, which does
/// nothing, beside the bare call. Both are of the same layer, compiled for that driver's GPU.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <benchmark/benchmark.h>
#include <sparsekiln/sparsekiln.h>

#include "runtime/cuda/driver.h"
#include "tests/temporary_folder.h"

namespace sk = sparsekiln;

namespace {

constexpr std::int64_t kGrid = 384;

sk::Layout headline_layer() { return sk::patterns::watts_strogatz(kGrid, kGrid, 0.1, 0.2, 1); }

sk::Options headline_options(const std::filesystem::path& cache_dir, const std::string& target) {
  return {.block = {32, 32}, .batch = 32, .target = target, .cache_dir = cache_dir};
}

using sparsekiln::test::TemporaryFolder;

/// The work of a child: one build, its milliseconds on standard output.
int build_once(const std::string& cache_dir) {
  const sk::Built built = sk::build(headline_layer(), headline_options(cache_dir, "sm_90"));
  std::printf("%s %.6f\n", std::string(sk::name(built.from)).c_str(), built.compile_ms);
  return 0;
}

/// Seconds inside `build` of a new process; negative where it did not come from `expected`.
double seconds_in_new_process(const std::filesystem::path& cache_dir, const std::string& expected) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  FILE* const child = popen(("'" + self + "' --build-once '" + cache_dir.string() + "'").c_str(), "r");
  char from[16] = "";
  double ms = -1;
  const bool read = std::fscanf(child, "%15s %lf", from, &ms) == 2;
  const int status = pclose(child);
  return read && status == 0 && from == expected ? ms / 1000 : -1;
}

void report(benchmark::State& state, double seconds) {
  if (seconds < 0) state.SkipWithError("the child did not build as expected");
  state.SetIterationTime(seconds);
}

void cold(benchmark::State& state) {
  for (auto _ : state) {
    const TemporaryFolder folder;
    report(state, seconds_in_new_process(folder.path(), "compiled"));
  }
}

void store(benchmark::State& state) {
  const TemporaryFolder folder;
  (void)seconds_in_new_process(folder.path(), "compiled");
  for (auto _ : state) report(state, seconds_in_new_process(folder.path(), "store"));
}

/// The headline layer on the stub driver, whose launches do nothing.
struct StubLaunch {
  StubLaunch() {
    setenv("SPARSEKILN_CUDA_DRIVER", STUB_DRIVER, 1);
    kernel = sk::compile(layout, options);
    operands = {.x = sk::view(memory, sk::DType::f32, 32, kFeatures),
                .w = sk::view(memory, sk::DType::f32, layout.blocks(), 32, 32),
                .y = sk::view(memory, sk::DType::f32, 32, kFeatures)};
  }

  static constexpr std::int64_t kFeatures = kGrid * 32;
  TemporaryFolder folder;
  sk::Layout layout = headline_layer();
  sk::Options options = headline_options(folder.path(), "cuda");
  alignas(256) char memory[256] = {};  // only its address is used: nothing runs
  sk::Kernel kernel;
  sk::Operands operands;
};

void memory(benchmark::State& state) {
  const StubLaunch held;
  for (auto _ : state) benchmark::DoNotOptimize(sk::compile(held.layout, held.options));
}

void launch(benchmark::State& state) {
  const StubLaunch stub;
  for (auto _ : state) stub.kernel(stub.operands);
}

/// The driver's own call, with the arguments made ready beforehand.
void driver_call(benchmark::State& state) {
  StubLaunch stub;
  const auto driver = sk::cuda::Driver::find();
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  const sk::Binary& binary = stub.kernel.binary();
  driver->check(driver->api().module_load_data(&module, binary.code.data(), 0, nullptr, nullptr),
                "loading a module");
  driver->check(driver->api().module_get_function(&function, module, binary.entries[0].passes[0].c_str()),
                "finding a function");
  void* pointer = stub.memory;
  std::int32_t n = 32;
  std::int64_t stride = StubLaunch::kFeatures;
  void* arguments[] = {&pointer, &pointer, &pointer, &pointer, &n, &stride, &stride};
  for (auto _ : state)
    driver->api().launch_kernel(function, 1, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr);
}

BENCHMARK(cold)->UseManualTime()->Iterations(7)->Unit(benchmark::kMillisecond);
BENCHMARK(store)->UseManualTime()->Iterations(15)->Unit(benchmark::kMillisecond);
BENCHMARK(memory)->Unit(benchmark::kNanosecond);
BENCHMARK(launch)->Unit(benchmark::kNanosecond);
BENCHMARK(driver_call)->Unit(benchmark::kNanosecond);

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--build-once") return build_once(argv[2]);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
