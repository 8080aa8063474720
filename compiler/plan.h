#pragma once

#include <cstddef>

#include <sparsekiln/config.h>

namespace sparsekiln {

/// Whether the layout comes with the launch (TableForm::attached). Throws `invalid_argument` where only some
/// of the configs say so.
[[nodiscard]] bool attached(const Plan& plan);

/// The first range of a plan that has the config of range `index`: code that depends on the config alone
/// serves both.
[[nodiscard]] std::size_t first_with_config(const Plan& plan, std::size_t index);

}  // namespace sparsekiln
