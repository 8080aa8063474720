/// How fast the emulator runs the tensor-core kernel: a 4096 × 4096 layer, block 32, 10 % present, batch 64,
/// f16, for sm_90, with all checks and with none.
///
/// `launch` is one launch of it with as many host threads as the process may use; `launch/one_thread` says
/// warp instructions a second on one core. The instructions are those that the emulator itself counts, in a
/// launch of its own with all checks. The kernel is checked first.
///
///   emulator_speed [--short] [Google Benchmark's options]

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <benchmark/benchmark.h>
#include <sparsekiln/sparsekiln.h>

#include "bench/check_kernel.h"
#include "bench/command_line.h"
#include "runtime/cuda/emulator.h"
#include "runtime/open_device.h"
#include "runtime/test_launch.h"
#include "tests/temporary_folder.h"

namespace sk = sparsekiln;

namespace {

constexpr const char* kTarget = "emulated:sm_90";

/// A checked kernel, and operands for it on the device.
class Launched {
 public:
  explicit Launched(std::int64_t grid) {
    const sparsekiln::test::TemporaryFolder folder;
    const sk::Layout layout = sk::patterns::random(grid, grid, 0.1, 1);
    const sk::Options options = {.block = {32, 32},
                                 .batch = 64,
                                 .dtype = sk::DType::f16,
                                 .target = kTarget,
                                 .cache_dir = folder.path()};
    kernel_ = sk::compile(layout, options);
    sk::bench::check_kernel(layout, options, kernel_);
    test_launch_ = sk::make_test_launch(sk::make_problem(layout, options), {.n = 64}, sk::Inputs::random, 1);
    layer_ = test_launch_->place(kernel_, device_);
    emulator_.reset_counters();
    launch();
    for (const sk::cuda::CountedLine& line : emulator_.counters()) instructions_ += line.executed;
  }
  void launch() const {
    layer_->launch(kernel_);
    device_->synchronize();
  }
  [[nodiscard]] const sk::cuda::Emulator& emulator() const { return emulator_; }
  /// Warp instructions of one launch.
  [[nodiscard]] std::uint64_t instructions() const { return instructions_; }

 private:
  std::shared_ptr<const sk::Device> device_ = sk::open_device(kTarget);
  sk::cuda::Emulator emulator_;
  sk::Kernel kernel_;
  std::unique_ptr<const sk::TestLaunch> test_launch_;
  std::unique_ptr<sk::PlacedOperands> layer_;
  std::uint64_t instructions_ = 0;
};

void launch(benchmark::State& state, const Launched& one, unsigned checks, int threads) {
  one.emulator().set_checks(checks);
  one.emulator().set_threads(threads);
  for (auto _ : state) one.launch();
  state.counters["warp_instructions"] = benchmark::Counter(static_cast<double>(one.instructions()),
                                                           benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<Launched> one;  // made when the first benchmark runs
  return sk::bench::run_benchmarks(argc, argv, [&one](auto&, bool is_short) {
    for (const auto& [checked, checks] :
         {std::pair{"all_checks", unsigned{EMULATOR_CHECK_ALL}}, {"no_checks", 0u}})
      for (const auto& [spread, threads] : {std::pair{"one_thread", 1}, {"all_threads", 0}})
        benchmark::RegisterBenchmark((std::string("launch/") + checked + "/" + spread).c_str(),
                                     [=, &one](benchmark::State& state) {
                                       if (!one) one.emplace(is_short ? 8 : 128);
                                       launch(state, *one, checks, threads);
                                     })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
  });
}
