#pragma once

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// What the families for small batches have in common: forward products of whole blocks with one weight and
/// batch-major activations that are aligned to 16 bytes. Throws `invalid_argument` for another problem, with
/// the variant that would work.
void validate_small_batch(const Spmm& problem, const Target& target, Variant variant);

}  // namespace sparsekiln::cuda
