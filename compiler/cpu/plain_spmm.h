#pragma once

#include <string>

#include <sparsekiln/binary.h>
#include <sparsekiln/config.h>

#include "compiler/cpu/layout_data.h"
#include "compiler/cpu/layout_ir.h"
#include "compiler/cpu/vector_ir.h"
#include "compiler/schedule.h"
#include "compiler/spmm.h"

namespace sparsekiln::cpu {

// The product of element types that no tiled pass is written for (CpuPasses::plain): one pass of
// straightforward loops over any element type of compiler/cpu/element_ir.cpp. A batch tile of x is copied
// block by block, widened, to the stack, where the batch rows of a feature are neighbors; vectors are of
// batch rows.
//
// Every output is one chain of multiply-adds from 0, ascending in block column and k. No row is split, so
// that results do not depend on the number of workers, and a launch needs no workspace.
//
// A convolution's tiles are of neighbouring points of one image (compiler/correlation.h): each point's x is
// copied from where the tap of the block reads, zeros outside of x, and points that are no y's are not
// stored.

/// Throws `invalid_argument` unless `config` can compute `problem`: tile_n is a power of two up to 64, and
/// nothing else is chosen.
void validate_plain(const Spmm& problem, const Config& config);

/// Writes the pass `name`.
void emit_plain_spmm(VectorIr& ir, const std::string& name, const Spmm& problem, const Config& config,
                     LayoutIr& layout);

/// What the pass takes of its layout: of ProductTable, items of kPlainItemFields each, columns, blocks,
/// places of taps and block scales. Each row of blocks is one item, of the worker that has its first part in
/// the schedule.
[[nodiscard]] LayoutData plain_spmm_data(const Spmm& problem, const Schedule& schedule);
inline constexpr std::int32_t kPlainItemFields = 3;  ///< block row, first step, steps

}  // namespace sparsekiln::cpu
