/// How fast the emulator runs the tensor-core kernel: a 4096 × 4096 layer, block 32, 10 % present, batch 64,
/// f16, for sm_90, with all checks and with none.
///
/// `launch` is one launch of it with as many host threads as the process may use; `launch/one_thread` says
/// warp instructions a second on one core. The instructions are those that the emulator itself counts.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include <benchmark/benchmark.h>
#include <sparsekiln/sparsekiln.h>

#include "autotune/inputs.h"
#include "autotune/poisoned_output.h"
#include "runtime/cuda/emulator.h"
#include "runtime/device.h"

namespace sk = sparsekiln;

namespace {

constexpr std::int64_t kGrid = 128;
constexpr std::int64_t kBatch = 64;
constexpr const char* kTarget = "emulated:sm_90";

/// Operands on the device, and the kernel that takes them.
class Layer {
 public:
  Layer() {
    std::string folder = (std::filesystem::temp_directory_path() / "sparsekiln-bench-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) std::abort();
    const sk::Layout layout = sk::patterns::random(kGrid, kGrid, 0.1, 1);
    const sk::Options options = {
        .block = {32, 32}, .batch = kBatch, .dtype = sk::DType::f16, .target = kTarget, .cache_dir = folder};
    const sk::Problem problem = sk::make_problem(layout, options);
    kernel_ = sk::compile(layout, options);
    std::filesystem::remove_all(folder);
    const sk::HostInputs inputs = sk::make_inputs(problem, kBatch, sk::Inputs::random, 1);
    const sk::PoisonedOutput output(problem, kBatch);
    x_ = std::make_unique<sk::DeviceMemory>(device_, inputs.x.size());
    w_ = std::make_unique<sk::DeviceMemory>(device_, inputs.w.size());
    y_ = std::make_unique<sk::DeviceMemory>(device_, output.image().size());
    x_->copy_in(inputs.x.data());
    w_->copy_in(inputs.w.data());
    operands_ = {.x = sk::view(x_->data(), problem.dtype, kBatch, problem.in_features()),
                 .w = sk::view(w_->data(), problem.dtype, layout.blocks(), 32, 32),
                 .y = output.view(y_->data())};
  }
  void launch() const {
    kernel_(operands_);
    device_->synchronize();
  }

 private:
  std::shared_ptr<const sk::Device> device_ = sk::open_device(kTarget);
  sk::Kernel kernel_;
  std::unique_ptr<sk::DeviceMemory> x_, w_, y_;
  sk::Operands operands_;
};

const Layer& layer() {
  static const Layer one;
  return one;
}

void launch(benchmark::State& state, unsigned checks, int threads) {
  const Layer& one = layer();
  const sk::cuda::Emulator emulator;
  emulator.set_checks(checks);
  emulator.set_threads(threads);
  emulator.reset_counters();
  for (auto _ : state) one.launch();
  std::uint64_t instructions = 0;
  for (const sk::cuda::CountedLine& line : emulator.counters()) instructions += line.executed;
  state.counters["warp_instructions"] =
      benchmark::Counter(static_cast<double>(instructions), benchmark::Counter::kIsRate);
}

}  // namespace

int main(int count, char** values) {
  for (const auto& [checked, checks] :
       {std::pair{"all_checks", unsigned{EMULATOR_CHECK_ALL}}, {"no_checks", 0u}})
    for (const auto& [spread, threads] : {std::pair{"one_thread", 1}, {"all_threads", 0}})
      benchmark::RegisterBenchmark((std::string("launch/") + checked + "/" + spread).c_str(),
                                   [=](benchmark::State& state) { launch(state, checks, threads); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
  benchmark::Initialize(&count, values);
  if (benchmark::ReportUnrecognizedArguments(count, values)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
