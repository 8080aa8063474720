/// What it costs to obtain a kernel, and to launch it: the headline layer (12288 wide, block 32, 90 %
/// sparse).
///
/// `cold` and `store` run in a new process each time, like a user's program: NVRTC is loaded and no cache is
/// filled. The time is that inside `build` (`compile_ms`). `memory` is a `compile` in a process that already
/// holds the same kernel. `launch` is a launch on a stub driver made for the tests, which does nothing,
/// compared with the bare call. Both use the same layer, compiled for that driver's GPU.
///
///  compile_latency [--short] [Google Benchmark's options]

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sparsekiln/sparsekiln.h>

#include "bench/command_line.h"
#include "runtime/cuda/driver.h"
#include "tests/temporary_folder.h"

namespace sk = sparsekiln;

namespace {

using sparsekiln::test::TemporaryFolder;

/// It has so many blocks a side: 384, fewer with --short.
sk::Layout headline_layer(std::int64_t grid) { return sk::patterns::watts_strogatz(grid, grid, 0.1, 0.2, 1); }

sk::Options headline_options(const std::filesystem::path& cache_dir, const std::string& target) {
  return {.block = {32, 32}, .batch = 32, .target = target, .cache_dir = cache_dir};
}

/// The work of a child: one build, its milliseconds on standard output.
int build_once(const std::string& grid, const std::string& cache_dir) {
  const sk::Built built = sk::build(headline_layer(std::stoll(grid)), headline_options(cache_dir, "sm_90"));
  std::printf("%s %.6f\n", std::string(sk::name(built.from)).c_str(), built.compile_ms);
  return 0;
}

/// Seconds inside `build` of a new process. Throws where it did not come from `expected`.
double seconds_in_new_process(std::int64_t grid, const std::filesystem::path& cache_dir,
                              const std::string& expected) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = fmt::format("'{}' --build-once {} '{}'", self, grid, cache_dir.string());
  FILE* const child = popen(command.c_str(), "r");
  char from[16] = "";
  double ms = -1;
  const bool read = std::fscanf(child, "%15s %lf", from, &ms) == 2;
  const int status = pclose(child);
  if (!read || status != 0 || from != expected)
    throw sk::Error(sk::ErrorKind::internal,
                    fmt::format("a child's kernel is '{}', not {}; status {}", from, expected, status));
  return ms / 1000;
}

void cold(benchmark::State& state, std::int64_t grid) {
  for (auto _ : state) {
    const TemporaryFolder folder;
    state.SetIterationTime(seconds_in_new_process(grid, folder.path(), "compiled"));
  }
}

void store(benchmark::State& state, std::int64_t grid) {
  const TemporaryFolder folder;
  static_cast<void>(seconds_in_new_process(grid, folder.path(), "compiled"));
  for (auto _ : state) state.SetIterationTime(seconds_in_new_process(grid, folder.path(), "store"));
}

/// Memory that nothing reads or writes: its pages are never made.
class Untouched {
 public:
  explicit Untouched(std::int64_t floats) : memory_(new float[static_cast<std::size_t>(floats)]) {}
  [[nodiscard]] float* data() const { return memory_.get(); }

 private:
  std::unique_ptr<float[]> memory_;
};

/// The headline layer on the stub driver, whose launches do nothing.
struct StubLaunch {
  explicit StubLaunch(std::int64_t grid) : layout(headline_layer(grid)), features(grid * 32) {
    setenv("SPARSEKILN_CUDA_DRIVER", STUB_DRIVER, 1);
    kernel = sk::compile(layout, options);
    operands = {.x = sk::view(x.data(), sk::DType::f32, 32, features),
                .w = sk::view(w.data(), sk::DType::f32, layout.blocks(), 32, 32),
                .y = sk::view(y.data(), sk::DType::f32, 32, features)};
  }

  TemporaryFolder folder;
  sk::Layout layout;
  sk::Options options = headline_options(folder.path(), "cuda");
  std::int64_t features;
  Untouched x{32 * features};
  Untouched w{layout.blocks() * 32 * 32};
  Untouched y{32 * features};
  sk::Kernel kernel;
  sk::Operands operands;
};

void memory(benchmark::State& state, const StubLaunch& held) {
  for (auto _ : state) {
    const sk::Kernel again = sk::compile(held.layout, held.options);
    if (again.from() != sk::From::memory) return state.SkipWithError("the kernel was not held");
  }
}

void launch(benchmark::State& state, const StubLaunch& stub) {
  for (auto _ : state) stub.kernel(stub.operands);
}

/// The driver's own call, with the arguments made ready beforehand.
void driver_call(benchmark::State& state, const StubLaunch& stub) {
  const auto driver = sk::cuda::Driver::find();
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  const sk::Binary& binary = stub.kernel.binary();
  driver->check(driver->api().module_load_data(&module, binary.code.data(), 0, nullptr, nullptr),
                "loading a module");
  driver->check(driver->api().module_get_function(&function, module, binary.entries[0].passes[0].c_str()),
                "finding a function");
  void* pointer = stub.x.data();
  std::int32_t n = 32;
  std::int64_t stride = stub.features;
  void* arguments[] = {&pointer, &pointer, &pointer, &pointer, &n, &stride, &stride};
  for (auto _ : state)
    if (driver->api().launch_kernel(function, 1, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr) !=
        CUDA_SUCCESS)
      return state.SkipWithError("the driver refused the launch");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--build-once") return build_once(argv[2], argv[3]);
  std::optional<StubLaunch> stub;  // made when it is first asked for
  return sk::bench::run_benchmarks(argc, argv, [&stub](auto&, bool is_short) {
    using benchmark::RegisterBenchmark;
    const std::int64_t grid = is_short ? 24 : 384;
    const auto in_processes = [](benchmark::internal::Benchmark* one, int iterations) {
      one->UseManualTime()->Iterations(iterations)->Unit(benchmark::kMillisecond);
    };
    in_processes(RegisterBenchmark("cold", cold, grid), is_short ? 1 : 7);
    in_processes(RegisterBenchmark("store", store, grid), is_short ? 2 : 15);
    const auto on_stub = [&](const char* name, auto measure) {
      RegisterBenchmark(name, [measure, grid, &stub](benchmark::State& state) {
        if (!stub) stub.emplace(grid);
        measure(state, *stub);
      })->Unit(benchmark::kNanosecond);
    };
    on_stub("memory", memory);
    on_stub("launch", launch);
    on_stub("driver_call", driver_call);
  });
}
