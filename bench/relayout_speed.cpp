/// What it costs to give an attached kernel another layout: 12288 × 12288 in blocks of 32 (a grid of 384 ×
/// 384), 10 % and 50 % present, for an H100's 132 multiprocessors, f32 and bf16.
///
/// `attach` is the part without a device: schedule and tables. `relayout` is Kernel::relayout as a whole on
/// the emulated device, including the upload and the release of the old tables; on a GPU, the copy over the
/// bus replaces that of the emulator. Layouts alternate, and are made beforehand. If the emulator needs only
/// seconds for it, the last kernel is launched and its results are checked.
///
///  relayout_speed [--short] [Google Benchmark's options]

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <sparsekiln/sparsekiln.h>

#include "bench/check_kernel.h"
#include "bench/command_line.h"
#include "compiler/attach.h"
#include "tests/temporary_folder.h"

namespace sk = sparsekiln;

namespace {

/// As many multiply-adds as the emulator does in seconds.
constexpr double kQuick = 1 << 24;

/// A case that is measured.
struct Case {
  std::int64_t grid;
  double density;
  sk::DType dtype;
  std::int64_t n;
  std::int32_t rows;  ///< Config::rows: more than 1 takes the search for row groups as well
};

std::array<sk::Layout, 2> layouts(const Case& asked) {
  return {sk::patterns::random(asked.grid, asked.grid, asked.density, 1),
          sk::patterns::random(asked.grid, asked.grid, asked.density, 2)};
}

sk::Options options_of(const Case& asked) {
  static const sparsekiln::test::TemporaryFolder store;
  return {.block = {32, 32},
          .batch = asked.n,
          .dtype = asked.dtype,
          .target = "emulated:sm_90:132",
          .specialization = sk::Specialization::attached,
          .cache_dir = store.path()};
}

sk::Kernel kernel_of(const sk::Layout& layout, const Case& asked) {
  sk::Options options = options_of(asked);
  if (asked.rows > 1) {
    options.config = sk::parse_config("mma tile_n=32 stages=4 warps=4 split=derived table=attached");
    options.config->rows = asked.rows;
  }
  return sk::compile(layout, options);
}

void attach(benchmark::State& state, const Case& asked) {
  const auto both = layouts(asked);
  const sk::Kernel kernel = kernel_of(both[0], asked);
  std::size_t turn = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sk::attach(both[++turn % 2], kernel.binary()));
}

void relayout(benchmark::State& state, const Case& asked) {
  const auto both = layouts(asked);
  sk::Kernel kernel = kernel_of(both[0], asked);
  std::size_t turn = 0;
  for (auto _ : state) kernel.relayout(both[++turn % 2]);
  state.counters["blocks"] = static_cast<double>(kernel.binary().operands.blocks);
  state.counters["table_bytes"] = static_cast<double>(kernel.binary().entries.front().tables.bytes.size());
  const sk::Layout& last = both[turn % 2];
  if (static_cast<double>(last.blocks() * 32 * 32 * asked.n) <= kQuick)
    sk::bench::check_kernel(last, options_of(asked), kernel);
}

}  // namespace

int main(int argc, char** argv) {
  return sk::bench::run_benchmarks(argc, argv, [](auto&, bool is_short) {
    std::vector<Case> cases;
    const std::int64_t grid = is_short ? 24 : 384;
    for (const double density : {0.1, 0.5}) {
      for (const sk::DType dtype : {sk::DType::f32, sk::DType::bf16})
        for (const std::int64_t n : {1, 64, 512}) cases.push_back({grid, density, dtype, n, 1});
      cases.push_back({grid, density, sk::DType::bf16, 64, 4});
    }
    if (is_short)
      std::erase_if(cases, [](const Case& one) { return one.dtype == sk::DType::f32 || one.n != 64; });
    for (const Case& asked : cases) {
      const std::string what = std::string(sk::name(asked.dtype)) + "/n=" + std::to_string(asked.n) +
                               "/rows=" + std::to_string(asked.rows) +
                               (asked.density < 0.2 ? "/10%" : "/50%");
      benchmark::RegisterBenchmark(("attach/" + what).c_str(), [=](benchmark::State& state) {
        attach(state, asked);
      })->Unit(benchmark::kMillisecond);
      benchmark::RegisterBenchmark(("relayout/" + what).c_str(),
                                   [=](benchmark::State& state) { relayout(state, asked); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    }
  });
}
