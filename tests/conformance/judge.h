#pragma once

#include <string>
#include <vector>

#include "tests/conformance/case_file.h"
#include "tests/conformance/runner.h"

namespace sparsekiln::conformance {

/// What is wrong with an answer by the case's expectation: empty, or the first differences and how many there
/// are.
[[nodiscard]] std::string differences(const Case& test, const Answer& answer);

/// The same against what another device answered: what the ISA leaves open may differ, NaNs may be others,
/// and tolerances are twice those of the case.
[[nodiscard]] std::string differences(const Case& test, const Answer& answer, const Answer& golden);

}  // namespace sparsekiln::conformance
