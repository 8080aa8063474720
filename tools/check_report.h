#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>
#include <CLI/CLI.hpp>

#include "oracle/check_result.h"
#include "runtime/device.h"
#include "runtime/test_launch.h"
#include "tools/answer.h"

namespace sparsekiln::tools {

/// What a command's launches are of, where options leave it open: the bounds where not given.
struct LaunchArguments {
  std::optional<std::int64_t> n;     ///< of a dynamic batch
  std::optional<std::string> input;  ///< of a dynamic convolution
};
void add_launch(CLI::App& app, LaunchArguments& arguments);
/// Throws `invalid_argument` where they do not fit.
[[nodiscard]] TestLaunchShape shape_of(const LaunchArguments& arguments, const Options& options);

/// Both oracles, the sharper one first.
struct Checked {
  CheckResult exact;
  CheckResult random;
  [[nodiscard]] bool ok() const { return exact.ok && random.ok; }
};

/// Launches once and judges what was computed, of which `image` gets the bytes where it is given.
[[nodiscard]] CheckResult judge(const Kernel& kernel, const std::shared_ptr<const Device>& device,
                                const TestLaunch& test_launch, std::vector<std::byte>* image = nullptr);

[[nodiscard]] Json describe(const CheckResult& check_result);

/// What `checked` found, into an answer, whose status it decides.
void report_check(const Checked& checked, Answer& answer);

}  // namespace sparsekiln::tools
