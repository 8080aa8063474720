#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

#include "oracle/check_result.h"
#include "runtime/device.h"
#include "runtime/test_launch.h"
#include "tools/answer.h"

namespace sparsekiln::tools {

/// The device that a Binary for `target` runs on here, where `asked` is what the command line says.
[[nodiscard]] std::shared_ptr<const Device> device_for(const Target& target, const std::string& asked);

/// The batch of one run: `asked`, which must fit, or the bound.
[[nodiscard]] std::int64_t batch_of(std::optional<std::int64_t> asked, Batch batch);

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
