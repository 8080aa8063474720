#pragma once

#include <cstdint>

#include "autotune/cuda_work.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// Adds what the passes do that transpose a batch of n, where images are channels-first, to the work of the
/// product. Bytes are exact where beta is 0.
void add_transpositions(Work& work, const Spmm& product, std::int64_t n);
void add_transpositions(Work& work, const Sddmm& gradient, std::int64_t n);

}  // namespace sparsekiln::cuda
