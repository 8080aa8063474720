/// What it costs to obtain a kernel, and to launch it: random layouts 12288 wide, block
/// 32, 99, 90 and 50 % sparse.
///
/// `cold` and `store` run in a new process each time, like a user's program: NVRTC is loaded and no cache is
/// filled. The time is that inside `build` (`compile_ms`). `pinned` is `cold` with one config for all layers,
/// so that only their tables differ: the default of the one of 99 %, tables in global memory. `any_batch` and
/// `any_batch_store` are `cold` and `store` of what a layer of PyTorch asks for: one kernel with attached
/// tables for all batches up to 2^20, which has a config for each of several ranges. `nvrtc` is what
/// NVRTC takes of `cold`, loading included: a new process that compiles the same source, and `nvrtc/empty` an
/// empty kernel. `choice` is what the choice of a default config takes of `cold` and `store`, in a process
/// that has done it before. `memory` is a `compile` in a process that already holds the same kernel. `launch`
/// is a launch on the tests' own driver, whose calls return at once, and `driver_call` the bare call. These
/// use the layer of 90 %, compiled for that driver's GPU.
///
///  compile_latency [--short] [Google Benchmark's options]
///  compile_latency --write docs/scheduling.md    puts its table between the marks in that file
///
/// On a machine with other load, --benchmark_enable_random_interleaving=true makes the rows comparable.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sparsekiln/sparsekiln.h>

#include "autotune/cuda/defaults.h"
#include "bench/command_line.h"
#include "bench/document.h"
#include "compiler/build.h"
#include "compiler/cuda/nvrtc_choice.h"
#include "runtime/build.h"
#include "runtime/cuda/driver.h"
#include "tests/temporary_folder.h"

namespace sk = sparsekiln;

namespace {

using sparsekiln::test::TemporaryFolder;

constexpr int kSparsities[] = {99, 90, 50};  // percent

/// Square, with so many blocks a side: 384, fewer with --short.
struct Layer {
  std::int64_t grid;
  int sparsity;

  [[nodiscard]] sk::Layout layout() const {
    return sk::patterns::random(grid, grid, (100 - sparsity) / 100.0, 1);
  }
  [[nodiscard]] sk::Options options(const std::filesystem::path& cache_dir, const std::string& target) const {
    return {
        .block = {32, 32}, .batch = 32, .dtype = sk::DType::bf16, .target = target, .cache_dir = cache_dir};
  }
  [[nodiscard]] std::string arguments() const { return fmt::format("{} {}", grid, sparsity); }
};

/// What a child builds for a layer: its own default, `common_config`, or code for any batch.
constexpr std::string_view kDefault = "default";
constexpr std::string_view kPinned = "pinned";
constexpr std::string_view kAnyBatch = "any_batch";

sk::Config common_config(std::int64_t grid) {
  const Layer layer{grid, kSparsities[0]};
  sk::Config config = sk::job_of(layer.layout(), layer.options({}, "sm_90")).plan.front().config;
  config.table = sk::TableForm::global;
  return config;
}

Layer layer_of(char** arguments) { return {std::stoll(arguments[0]), std::stoi(arguments[1])}; }

/// The work of a child: one build. What it came from and its milliseconds are on standard output.
int build_once(const Layer& layer, const std::string& cache_dir, std::string_view what) {
  sk::Options options = layer.options(cache_dir, "sm_90");
  if (what == kPinned) options.config = common_config(layer.grid);
  if (what == kAnyBatch) {
    options.batch = sk::Batch::up_to(1 << 20);
    options.specialization = sk::Specialization::attached;
  }
  const sk::Built built = sk::build(layer.layout(), options);
  std::printf("%s %.6f\n", std::string(sk::name(built.from)).c_str(), built.compile_ms);
  return 0;
}

/// The work of a child: NVRTC is loaded and compiles a source.
int compile_once(const std::string& source) {
  const auto start = std::chrono::steady_clock::now();
  const sk::cuda::NvrtcOutput output = sk::cuda::find_nvrtc({}, "sm_90")->compile(source, "sm_90");
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  std::printf("nvrtc %.6f\n", output.cubin.empty() ? -1 : taken.count());
  return 0;
}

std::string source_of(const Layer& layer) {
  const sk::BuildJob job = sk::job_of(layer.layout(), layer.options({}, "sm_90"));
  return sk::emit_source(job.problem, job.target, job.plan);
}

/// The seconds that a new process of this program prints. Throws where they are not those of `expected`.
double seconds_in_new_process(const std::string& arguments, const std::string& expected) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  FILE* const child = popen(fmt::format("'{}' {}", self, arguments).c_str(), "r");
  char from[16] = "";
  double ms = -1;
  const bool read = std::fscanf(child, "%15s %lf", from, &ms) == 2;
  const int status = pclose(child);
  if (!read || status != 0 || from != expected)
    throw sk::Error(sk::ErrorKind::internal,
                    fmt::format("a child's kernel is '{}', not {}; status {}", from, expected, status));
  return ms / 1000;
}

double seconds_of_build(const Layer& layer, const TemporaryFolder& cache, const std::string& expected,
                        std::string_view what) {
  return seconds_in_new_process(
      fmt::format("--build-once {} '{}' {}", layer.arguments(), cache.path().string(), what), expected);
}

void cold(benchmark::State& state, const Layer& layer, std::string_view what) {
  for (auto _ : state) {
    const TemporaryFolder folder;
    state.SetIterationTime(seconds_of_build(layer, folder, "compiled", what));
  }
}

void nvrtc(benchmark::State& state, const std::string& arguments) {
  for (auto _ : state) state.SetIterationTime(seconds_in_new_process("--compile-once " + arguments, "nvrtc"));
}

void store(benchmark::State& state, const Layer& layer, std::string_view what) {
  const TemporaryFolder folder;
  static_cast<void>(seconds_of_build(layer, folder, "compiled", what));
  for (auto _ : state) state.SetIterationTime(seconds_of_build(layer, folder, "store", what));
}

void choice(benchmark::State& state, const Layer& layer) {
  const sk::BuildJob job = sk::job_of(layer.layout(), layer.options({}, "sm_90"));
  for (auto _ : state) benchmark::DoNotOptimize(sk::cuda::default_config(job.problem, job.target, 32));
}

/// Memory that nothing reads or writes: its pages are never made.
class Untouched {
 public:
  explicit Untouched(std::int64_t elements)
      : memory_(new std::uint16_t[static_cast<std::size_t>(elements)]) {}
  [[nodiscard]] std::uint16_t* data() const { return memory_.get(); }

 private:
  std::unique_ptr<std::uint16_t[]> memory_;
};

/// A layer on the stub driver, whose launches do nothing.
struct StubLaunch {
  explicit StubLaunch(const Layer& layer, std::int32_t side = 32, std::optional<sk::Config> config = {})
      : layout(layer.layout()),
        options(layer.options(folder.path(), "cuda")),
        features(layer.grid * side),
        w(layout.blocks() * side * side) {
    setenv("SPARSEKILN_CUDA_DRIVER", STUB_DRIVER, 1);
    options.block = {side, side};
    options.config = config;
    kernel = sk::compile(layout, options);
    operands = {.x = sk::view(x.data(), sk::DType::bf16, 32, features),
                .w = sk::view(w.data(), sk::DType::bf16, layout.blocks(), side, side),
                .y = sk::view(y.data(), sk::DType::bf16, 32, features)};
  }

  TemporaryFolder folder;
  sk::Layout layout;
  sk::Options options;
  std::int64_t features;
  Untouched x{32 * features};
  Untouched w;
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

void declare(std::int64_t grid, bool is_short, std::optional<StubLaunch>& stub) {
  using benchmark::RegisterBenchmark;
  const auto in_processes = [&](benchmark::internal::Benchmark* one) {
    one->UseManualTime()
        ->Iterations(1)
        ->Repetitions(is_short ? 2 : 11)
        ->ReportAggregatesOnly()
        ->Unit(benchmark::kMillisecond);
  };
  for (const int sparsity : kSparsities) {
    const Layer layer{grid, sparsity};
    in_processes(RegisterBenchmark(fmt::format("cold/{}", sparsity).c_str(), cold, layer, kDefault));
    in_processes(RegisterBenchmark(fmt::format("pinned/{}", sparsity).c_str(), cold, layer, kPinned));
    in_processes(RegisterBenchmark(fmt::format("any_batch/{}", sparsity).c_str(), cold, layer, kAnyBatch));
    in_processes(RegisterBenchmark(fmt::format("nvrtc/{}", sparsity).c_str(), nvrtc, layer.arguments()));
    in_processes(RegisterBenchmark(fmt::format("store/{}", sparsity).c_str(), store, layer, kDefault));
    in_processes(
        RegisterBenchmark(fmt::format("any_batch_store/{}", sparsity).c_str(), store, layer, kAnyBatch));
    RegisterBenchmark(fmt::format("choice/{}", sparsity).c_str(), choice, layer)
        ->Repetitions(is_short ? 2 : 11)
        ->ReportAggregatesOnly()
        ->Unit(benchmark::kMillisecond);
  }
  in_processes(RegisterBenchmark("nvrtc/empty", nvrtc, std::string()));
  const auto on_stub = [&](const char* name, auto measure) {
    RegisterBenchmark(name, [measure, grid, &stub](benchmark::State& state) {
      if (!stub) stub.emplace(Layer{grid, 90});
      measure(state, *stub);
    })->Unit(benchmark::kNanosecond);
  };
  on_stub("memory", memory);
  on_stub("launch", launch);
  on_stub("driver_call", driver_call);
  // Blocks of 64 by wgmma, whose tensor maps are encoded for each launch, and by mma, which has none.
  for (const char* config : {"wgmma tile_n=128 stages=4 warps=12", "mma tile_n=32 warps=4 stages=4"}) {
    const std::string name =
        fmt::format("launch_{}", std::string_view(config).substr(0, std::string_view(config).find(' ')));
    RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      const StubLaunch blocks_of_64(Layer{grid / 2, 90}, 64, sk::parse_config(config));
      launch(state, blocks_of_64);
    })->Unit(benchmark::kNanosecond);
  }
}

std::string table(const sk::bench::Medians& medians) {
  const auto row = [&](const std::string& what, const std::string& name) {
    std::string text = fmt::format("| {} |", what);
    for (const int sparsity : kSparsities) {
      const auto ms = medians.ms(fmt::format("{}/{}", name, sparsity));
      text += ms ? fmt::format(" {:.1f} ms |", *ms) : " |";
    }
    return text + "\n";
  };
  std::string text = "| 12288 wide, blocks of 32, batch 32, bf16, sm_90 |";
  for (const int sparsity : kSparsities) text += fmt::format(" {} % sparse |", sparsity);
  text += "\n|---|---|---|---|\n";
  text += row("`build()` in a new process, nothing stored", "cold");
  text += row("The same, with one config for all three", "pinned");
  text += row("NVRTC alone, loaded in a new process to compile that source", "nvrtc");
  text += row("`build()` in a new process, from the store", "store");
  text += row("`build()` for any batch up to 2^20, attached, nothing stored", "any_batch");
  text += row("The same, from the store", "any_batch_store");
  text += row("The choice of a default config alone", "choice");
  if (const auto ms = medians.ms("nvrtc/empty"))
    text += fmt::format("\nNVRTC takes {:.1f} ms to be loaded and compile an empty kernel.\n", *ms);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--build-once" && argc == 6) return build_once(layer_of(argv + 2), argv[4], argv[5]);
  if (first == "--compile-once" && argc == 4) return compile_once(source_of(layer_of(argv + 2)));
  if (first == "--compile-once") return compile_once("extern \"C\" __global__ void empty() {}");
  std::optional<StubLaunch> stub;  // made when it is first asked for
  std::optional<sk::bench::Document> document;
  sk::bench::Medians medians;
  const int status = sk::bench::run_benchmarks(
      argc, argv,
      [&](sk::bench::CommandLine& line, bool is_short) {
        if (const auto path = line.take("--write")) document.emplace(*path, "compile_latency");
        declare(is_short ? 24 : 384, is_short, stub);
      },
      [&](const auto& run) { medians.keep(run); });
  if (status == 0 && document) document->write(table(medians));
  return status;
}
