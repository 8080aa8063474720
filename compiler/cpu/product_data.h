#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/cpu/layout_data.h"
#include "compiler/cpu/passes.h"
#include "compiler/schedule.h"
#include "compiler/spmm.h"

namespace sparsekiln::cpu {

/// What the code of an entry of a product takes of its layout. `counters_in_front`: counter_bytes of the
/// plan. There are blocks' numbers where the weight is read by columns alone; else blocks are taken in turn.
[[nodiscard]] LayoutData product_data(const Spmm& problem, const Geometry& geometry, const Schedule& schedule,
                                      std::int64_t counters_in_front);

/// LayoutNumber::words.
[[nodiscard]] std::int64_t words_of(const Spmm& problem, const Geometry& geometry);

/// The tap of a block of a convolution, in this row and column of the layout.
[[nodiscard]] const Correlation::Tap& tap_of(const Spmm& problem, std::int32_t row, std::int32_t column);

/// Sets the numbers of features of x and y, and those of the last block column and row.
void set_features(LayoutData& data, const Spmm& problem);

/// The passes of an entry whose layout is attached, in the order in which they run, where there are no
/// attached_forms.
[[nodiscard]] std::vector<std::string> attached_passes(const Geometry& geometry, const std::string& suffix,
                                                       std::int64_t workers);

/// The pass that follows a product with Spmm::normalisation.
[[nodiscard]] std::string normalise_pass(const std::string& suffix);

/// The geometries that code is made for, of which an attached layout takes one by its size: those of a
/// convolution where no layout has tiles that several workers share; else none. `n` as of schedules.
[[nodiscard]] std::vector<Geometry> attached_forms(const Spmm& problem, const Geometry& geometry,
                                                   const Target& target, const Config& config,
                                                   std::int64_t n);
/// What the passes of one of them have at the end of their names.
[[nodiscard]] std::string form_suffix(const Geometry& form, const std::string& suffix);

/// Sets the tiles of a convolution's entry: a job is of whole images, or an image has several.
void describe_jobs(const Geometry& geometry, Entry& entry);

/// Drops the blocks' numbers where each step's block has the step's.
void drop_known_blocks(LayoutData& data);

}  // namespace sparsekiln::cpu
