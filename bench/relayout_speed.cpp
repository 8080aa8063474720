/// What it costs to give an attached kernel another layout: 12288 × 12288 in blocks of 32 (a grid of 384 ×
/// 384), 10 % and 50 % present, for an H100's 132 multiprocessors, f32 and bf16.
///
/// `attach` is the part without a device: schedule and tables. `relayout` is Kernel::relayout as a whole on
/// the emulated device, the upload and the release of the old tables included; on a GPU the copy over the bus
/// takes the place of the emulator's. Layouts alternate, and are made beforehand.

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <sparsekiln/sparsekiln.h>

#include "compiler/attach.h"

namespace sk = sparsekiln;

namespace {

constexpr std::int64_t kGrid = 384;

std::array<sk::Layout, 2> layouts(double density) {
  return {sk::patterns::random(kGrid, kGrid, density, 1), sk::patterns::random(kGrid, kGrid, density, 2)};
}

/// What is measured.
struct Case {
  double density;
  sk::DType dtype;
  std::int64_t n;
  std::int32_t rows;  ///< Config::rows: more than 1 takes the clustering of block rows as well
};

sk::Kernel kernel_of(const sk::Layout& layout, const Case& asked) {
  std::string folder = (std::filesystem::temp_directory_path() / "sparsekiln-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) std::abort();
  sk::Options options = {.block = {32, 32},
                         .batch = asked.n,
                         .dtype = asked.dtype,
                         .target = "emulated:sm_90:132",
                         .attached = true,
                         .cache_dir = folder};
  sk::Kernel kernel = sk::compile(layout, options);
  if (asked.rows > 1) {
    options.config = kernel.binary().plan.front().config;
    options.config->rows = asked.rows;
    kernel = sk::compile(layout, options);
  }
  std::filesystem::remove_all(folder);
  return kernel;
}

void attach(benchmark::State& state, const Case& asked) {
  const auto both = layouts(asked.density);
  const sk::Kernel kernel = kernel_of(both[0], asked);
  std::size_t turn = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sk::attach(both[++turn % 2], kernel.binary()));
}

void relayout(benchmark::State& state, const Case& asked) {
  const auto both = layouts(asked.density);
  sk::Kernel kernel = kernel_of(both[0], asked);
  std::size_t turn = 0;
  for (auto _ : state) kernel.relayout(both[++turn % 2]);
  state.counters["blocks"] = static_cast<double>(kernel.binary().operands.blocks);
  state.counters["table_bytes"] = static_cast<double>(kernel.binary().entries.front().tables.bytes.size());
}

}  // namespace

int main(int count, char** values) {
  std::vector<Case> cases;
  for (const double density : {0.1, 0.5}) {
    for (const sk::DType dtype : {sk::DType::f32, sk::DType::bf16})
      for (const std::int64_t n : {1, 64, 512}) cases.push_back({density, dtype, n, 1});
    cases.push_back({density, sk::DType::bf16, 64, 4});
  }
  for (const Case& asked : cases) {
    const std::string what = std::string(sk::name(asked.dtype)) + "/n=" + std::to_string(asked.n) +
                             "/rows=" + std::to_string(asked.rows) + (asked.density < 0.2 ? "/10%" : "/50%");
    benchmark::RegisterBenchmark(("attach/" + what).c_str(), [=](benchmark::State& state) {
      attach(state, asked);
    })->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("relayout/" + what).c_str(),
                                 [=](benchmark::State& state) { relayout(state, asked); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
  benchmark::Initialize(&count, values);
  if (benchmark::ReportUnrecognizedArguments(count, values)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
