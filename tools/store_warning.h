#pragma once

#include <sparsekiln/compile.h>

#include "tools/answer.h"

namespace sparsekiln::tools {

/// A store that cannot be used is no error, but nothing that is compiled is kept: adds Built::cache_warning
/// and Built::pack_warning, where there are any, to the answer's warnings.
void warn_if_not_kept(const Built& built, Answer& answer);

/// The overload for a Kernel, which does not carry the warning: asks `build` again, which has the Binary at
/// hand.
void warn_if_not_kept(const Options& options, const Problem& problem, const Binary& binary, From from,
                      Answer& answer);

}  // namespace sparsekiln::tools
