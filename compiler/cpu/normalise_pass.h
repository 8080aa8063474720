#pragma once

#include <cstdint>
#include <string_view>

#include "compiler/cpu/layout_ir.h"
#include "compiler/cpu/vector_ir.h"
#include "compiler/spmm.h"

namespace sparsekiln::cpu {

/// The pass that finishes what a product with Spmm::normalisation has summed, when all of it is there: the
/// formulas stand at Epilogue in include/sparsekiln/problem.h. `tile_n`: of the entry, whose workers and
/// batch tiles share the batch rows; those of the gradient by parts of dnorm.
///
/// A batch row is read several times while it is in L1 or L2: for its mean, for its variance, which is that
/// of differences from the mean, and to be finished. A sum over features has four chains for each lane,
/// feature f of whole vectors in lane f mod lanes, then halves of the chains and of the lanes are added until
/// one is left, and features beyond whole vectors one by one. So its bits depend on the level alone.
void emit_normalise_pass(VectorIr& ir, std::string_view name, const Spmm& problem, std::int32_t tile_n,
                         LayoutIr& layout);

}  // namespace sparsekiln::cpu
