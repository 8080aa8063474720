#pragma once

#include <sparsekiln/convolution.h>

#include "compiler/correlation.h"
#include "compiler/cuda/declarations.h"
#include "compiler/source.h"

namespace sparsekiln::cuda {

/// Throws `invalid_argument` where templates/lattice.cuh has no bits for all positions of the kernel.
void validate_lattice(const Computation& computed);

/// The members of Config that templates/extents.cuh and templates/lattice.cuh read. `correlation`: null for a
/// linear layer; `gathers`: rows of x are not those of y; `mirrored`: the correlation is that of the gradient
/// by the input.
[[nodiscard]] Declarations image_declarations(const Convolution& convolution, const Correlation* correlation,
                                              bool gathers, bool mirrored);

/// Writes `struct EdgeRuns`, which edge_situation of templates/lattice.cuh reads, and its arrays.
void write_edge_runs(Source& source, const Convolution& convolution);

}  // namespace sparsekiln::cuda
