#pragma once

#include <string>

#include <sparsekiln/config.h>

#include "compiler/cpu/layout_ir.h"
#include "compiler/cpu/vector_ir.h"
#include "compiler/sddmm.h"

namespace sparsekiln::cpu {

// The gradient of the weight of element types that no tiled pass is written for (CpuPasses::plain): one pass
// of straightforward loops over any element type of compiler/cpu/element_ir.cpp. For each block
// Config::tile_n batch rows of x and dy at a time are copied, widened, to the stack; vectors are of the
// features of dw's columns. The rows of one of the two are, for a convolution, those that the block's tap
// reads.
//
// Every element of dw is one chain of multiply-adds from 0, ascending in pair and batch row, every element
// of dbias one chain of additions in the same order, and every element of dblock_scales one chain of
// multiply-adds, row by row over the block. All are independent of how blocks are shared out.

/// Throws `invalid_argument` unless `config` can compute `gradient`: tile_n is at most 64, stages 1.
void validate_plain(const Sddmm& gradient, const Config& config);

/// Writes the pass `name`. It reads the same tables as SddmmPass.
void emit_plain_sddmm(VectorIr& ir, const std::string& name, const Sddmm& gradient, const Config& config,
                      LayoutIr& layout);

}  // namespace sparsekiln::cpu
