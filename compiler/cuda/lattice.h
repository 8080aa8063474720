#pragma once

#include <sparsekiln/convolution.h>

#include "compiler/correlation.h"
#include "compiler/cuda/declarations.h"
#include "compiler/source.h"

namespace sparsekiln::cuda {

/// Throws `invalid_argument` where templates/lattice.cuh has no bits for all positions of the kernel.
void validate_lattice(const Computation& computed);

/// The members of Config that templates/lattice.cuh reads. `mirrored`: the correlation is that of the
/// gradient by the input.
[[nodiscard]] Declarations lattice_declarations(const Convolution& convolution,
                                                const Correlation& correlation, bool mirrored);

/// Writes `struct EdgeRuns`, which edge_situation of templates/lattice.cuh reads, and its arrays.
void write_edge_runs(Source& source, const Convolution& convolution);

}  // namespace sparsekiln::cuda
