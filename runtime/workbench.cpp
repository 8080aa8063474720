#include "runtime/workbench.h"

#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/build.h"
#include "runtime/build_job.h"
#include "runtime/isolated.h"

namespace sparsekiln {
namespace {

constexpr std::uint64_t kSeed = 1;

std::string failure_of(const Isolated& result) {
  switch (result.end) {
    case Isolated::End::late:
      return "its compile hangs: " + result.message;
    case Isolated::End::crashed:
      return "the compiler crashed: " + result.message;
    default:
      return "it does not compile: " + result.message;
  }
}

}  // namespace

DeviceWorkbench::DeviceWorkbench(const Problem& problem, const Target& target,
                                 std::shared_ptr<const Device> device, std::string asked,
                                 const Limits& limits, WorkbenchHooks hooks)
    : problem_(problem),
      target_(target),
      device_(std::move(device)),
      asked_(std::move(asked)),
      limits_(limits),
      hooks_(std::move(hooks)),
      measures_(device_ != nullptr && device_->timing().measures) {}

void DeviceWorkbench::compile(std::span<const Config> configs, const Done& done,
                              const std::function<bool()>& stop) {
  const Toolchain toolchain = toolchain_for(target_, asked_);
  const auto work = [&](std::size_t i) {
    const Plan plan{{problem_.batch.bound(), configs[i]}};
    return serialize(hooks_.build ? hooks_.build(problem_, target_, plan)
                                  : build_binary(problem_, target_, plan, toolchain));
  };
  const auto ended = [&](std::size_t i, Isolated result) {
    Compiled compiled{.binary = nullptr, .failure = {}, .ms = result.ms, .stopped = false};
    try {
      if (result.end == Isolated::End::stopped)
        compiled.stopped = true;
      else if (result.end == Isolated::End::done)
        compiled.binary = std::make_shared<const Binary>(deserialize(result.bytes));
      else
        compiled.failure = failure_of(result);
    } catch (const Error& error) {
      compiled.failure = fmt::format("its compile gave no Binary: {}", error.what());
    }
    done(i, std::move(compiled));
  };
  run_isolated(configs.size(), limits_.at_once, limits_.of_one, work, ended, stop);
}

std::string DeviceWorkbench::check(const Config& config, std::shared_ptr<const Binary> binary) {
  if (device_ == nullptr) return {};
  const std::int64_t n = problem_.batch.bound();
  if (exact_ == nullptr) {
    exact_ = make_test_launch(problem_, {.n = n}, Inputs::small_integers, kSeed);
    random_ = make_test_launch(problem_, {.n = n}, Inputs::random, kSeed);
  }
  Ready ready{load(std::move(binary), asked_), nullptr};
  for (const TestLaunch* const test_launch : {exact_.get(), random_.get()}) {
    const std::unique_ptr<PlacedOperands> placed = test_launch->place(ready.kernel, device_);
    placed->launch(ready.kernel);
    device_->synchronize();
    const CheckResult check_result = placed->judge(ready.kernel.binary().plan, nullptr);
    if (!check_result.ok) return check_result.first_failure;
  }
  if (measures_) ready_.insert_or_assign(to_string(config), std::move(ready));
  return {};
}

PlacedOperands& DeviceWorkbench::layer(const Kernel& kernel) {
  if (layer_ == nullptr) {
    const auto bytes = static_cast<std::int64_t>(random_->place(kernel, device_)->bytes());
    layer_ = random_->place(kernel, device_, rotate(bytes, *device_).copies);
  }
  return *layer_;
}

double DeviceWorkbench::sample(const Config& config) {
  const std::string key = to_string(config);
  Ready& ready = ready_.at(key);
  if (ready.sampler == nullptr) {
    PlacedOperands& operands = layer(ready.kernel);
    const auto launch = [&operands, kernel = ready.kernel](void* stream) { operands.launch(kernel, stream); };
    ready.sampler = std::make_unique<Sampler>(*device_, launch);
  } else if (last_ != key) {
    ready.sampler->refresh();
  }
  last_ = key;
  return 1e3 * ready.sampler->sample_ms();
}

void DeviceWorkbench::drop(const Config& config) { ready_.erase(to_string(config)); }

}  // namespace sparsekiln
