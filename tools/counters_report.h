#pragma once

#include "runtime/cuda/emulator.h"
#include "tools/answer.h"

namespace sparsekiln::tools {

/// What the emulator counted since its counters were reset, into `answer`: the totals of each kernel, and
/// with `annotate` what each line of its PTX did.
void report_counters(const cuda::Emulator& emulator, bool annotate, Answer& answer);

}  // namespace sparsekiln::tools
