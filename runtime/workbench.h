#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include <sparsekiln/compile.h>

#include "autotune/tuner.h"
#include "runtime/device.h"
#include "runtime/sampler.h"
#include "runtime/test_launch.h"

namespace sparsekiln {

/// What tests use instead of compiling, loading and timing, to see how broken ones are handled.
struct WorkbenchHooks {
  std::function<Binary(const Problem&, const Target&, const Plan&)> build;  ///< in the child process
};

/// Compiles in child processes, and checks and times candidates on a device.
class DeviceWorkbench final : public Workbench {
 public:
  struct Limits {
    std::size_t at_once = 1;                   ///< compiles
    std::chrono::milliseconds of_one{60'000};  ///< compile
  };
  /// `problem` has a fixed batch. `device`: where candidates run, opened as `asked`; null where the
  /// target has none here, and nothing is checked or timed. An emulated one checks, and has no clock.
  DeviceWorkbench(const Problem& problem, const Target& target, std::shared_ptr<const Device> device,
                  std::string asked, const Limits& limits, WorkbenchHooks hooks = {});

  void compile(std::span<const Config> configs, const Done& done, const std::function<bool()>& stop) override;
  std::string check(const Config& config, std::shared_ptr<const Binary> binary) override;
  bool measures() const override { return measures_; }
  double sample(const Config& config) override;
  void drop(const Config& config) override;

 private:
  struct Ready {
    Kernel kernel;
    std::unique_ptr<Sampler> sampler;
  };
  /// The operands that samples of all candidates read, made when the first is taken.
  PlacedOperands& layer(const Kernel& kernel);

  Problem problem_;
  Target target_;
  std::shared_ptr<const Device> device_;
  std::string asked_;
  Limits limits_;
  WorkbenchHooks hooks_;
  bool measures_;
  std::unique_ptr<const TestLaunch> exact_;
  std::unique_ptr<const TestLaunch> random_;
  std::unique_ptr<PlacedOperands> layer_;
  std::map<std::string, Ready> ready_;  ///< by config
  std::string last_;                    ///< whose launches left the caches as they are
};

}  // namespace sparsekiln
