#pragma once

#include <string>
#include <vector>

#include "tests/conformance/case_file.h"
#include "tests/conformance/runner.h"

namespace sparsekiln::conformance {

/// How an answer differs from what the case expects: empty, or the first differences and how many there are.
[[nodiscard]] std::string differences(const Case& test, const Answer& answer);

/// The same compared with the answer of another device: what the ISA leaves open may differ, NaNs may be
/// others, and tolerances are twice those of the case.
[[nodiscard]] std::string differences(const Case& test, const Answer& answer, const Answer& golden);

}  // namespace sparsekiln::conformance
