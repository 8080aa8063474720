#pragma once

#include <sparsekiln/convolution.h>

#include "compiler/correlation.h"
#include "compiler/cuda/declarations.h"

namespace sparsekiln::cuda {

/// Throws `invalid_argument` where templates/lattice.cuh has no bits for all positions of the kernel.
void validate_lattice(const Computation& computed);

/// The members of Config that templates/lattice.cuh reads. `mirrored`: the correlation is that of the
/// gradient by the input.
[[nodiscard]] Declarations lattice_declarations(const Convolution& convolution,
                                                const Correlation& correlation, bool mirrored);

}  // namespace sparsekiln::cuda
