#pragma once

#include <sparsekiln/config.h>

namespace sparsekiln {

/// Whether the layout comes with the launch (TableForm::attached). Throws `invalid_argument` where only some
/// of the configs say so.
[[nodiscard]] bool attached(const Plan& plan);

}  // namespace sparsekiln
