#pragma once

#include <cstdint>
#include <string_view>

#include <sparsekiln/binary.h>
#include <sparsekiln/config.h>

#include "compiler/block_runs.h"
#include "compiler/cuda/table_text.h"
#include "compiler/sddmm.h"
#include "compiler/source.h"

// The tables of gradients of the weight: runs of blocks, or groups of pieces (templates/sddmm.cuh,
// templates/piece_groups.cuh).

namespace sparsekiln::cuda {

/// Writes the arrays of the next entry of a source, and `struct Table<index>`, which reads them.
/// `block_scales`: its members that write_block_scales returned.
void write_tables(Source& source, TablePlaces& places, const Sddmm& gradient, const BlockRuns& schedule,
                  const Config& config, std::string_view block_scales);
/// Writes a `struct Table<index>` that comes with the launch.
void write_attached_table(Source& source, const Config& config, std::string_view block_scales);
/// What it comes with: `slices` CTAs share a run.
[[nodiscard]] TableImage image_of(const Sddmm& gradient, const BlockRuns& schedule, const Config& config,
                                  std::int32_t slices);

/// No schedule of this gradient has larger tables. From the layout's size alone.
[[nodiscard]] std::int64_t table_bound(const Sddmm& gradient, const Config& config);

}  // namespace sparsekiln::cuda
