#include <algorithm>
#include <string_view>

#include "emulator/machine/block.h"
#include "emulator/machine/warp.h"

namespace sparsekiln::emulator {
namespace {

/// The special registers of the PTX ISA (section 10), for one thread.
struct Place {
  const Block& block;
  const Warp& warp;
  std::uint32_t block_at[3];

  Place(const Block& of, const Warp& in) : block(of), warp(in) { of.grid.block_place(of.index, block_at); }

  [[nodiscard]] std::uint64_t value(std::string_view name, std::uint32_t lane) const {
    const Grid& grid = block.grid;
    if (name.size() > 2 && name[name.size() - 2] == '.' && name.back() >= 'x' && name.back() <= 'z') {
      const std::size_t axis = static_cast<std::size_t>(name.back() - 'x');
      const std::string_view vector = name.substr(0, name.size() - 2);
      std::uint32_t thread[3];
      grid.thread_place(warp.index * kLanes + lane, thread);
      if (vector == "%tid") return thread[axis];
      if (vector == "%ntid") return grid.request.block[axis];
      if (vector == "%ctaid") return block_at[axis];
      if (vector == "%nctaid") return grid.request.grid[axis];
      std::uint32_t cluster[3];
      std::uint32_t within[3];
      grid.cluster_place(block.index, cluster, within);
      if (vector == "%clusterid") return cluster[axis];
      if (vector == "%nclusterid") return grid.request.grid[axis] / grid.request.cluster[axis];
      if (vector == "%cluster_ctaid") return within[axis];
      if (vector == "%cluster_nctaid") return grid.request.cluster[axis];
    }
    if (name == "%laneid") return lane;
    if (name == "%warpid") return warp.index;
    if (name == "%nwarpid") return grid.warps;
    if (name == "%smid") return block.index % grid.request.multiprocessors;
    if (name == "%nsmid") return grid.request.multiprocessors;
    if (name == "%cluster_ctarank") return block.rank;
    if (name == "%cluster_nctarank") return grid.cluster_size();
    if (name == "%lanemask_eq") return 1u << lane;
    if (name == "%lanemask_lt") return (1u << lane) - 1;
    if (name == "%lanemask_le") return ((1u << lane) - 1) | 1u << lane;
    if (name == "%lanemask_gt") return ~(((1u << lane) - 1) | 1u << lane);
    if (name == "%lanemask_ge") return ~((1u << lane) - 1);
    if (name == "%dynamic_smem_size") return grid.request.dynamic_shared_bytes;
    if (name == "%total_smem_size" || name == "%aggr_smem_size") return grid.shared_bytes;
    throw Fault(FaultKind::invalid_operation, "special register " + std::string(name) + " has no value");
  }
};

template <class T>
void fill(const Warp& warp, const FixedRow& fixed, const Place& place) {
  T* const row = warp.row<T>(fixed.row);
  if (fixed.source == FixedRow::Source::constant)
    std::fill_n(row, kLanes, static_cast<T>(fixed.value));
  else
    for (std::uint32_t lane = 0; lane < kLanes; ++lane)
      row[lane] = static_cast<T>(place.value(fixed.special, lane));
}

}  // namespace

void fill_fixed_rows(const Block& block, const Warp& warp, bool first) {
  const Place place(block, warp);
  for (const FixedRow& fixed : block.grid.program.fixed_rows) {
    // Most keep what they hold from one block to the next: instructions write none but those that begin as
    // zero.
    const bool special = fixed.source == FixedRow::Source::special;
    const bool changes = special ? fixed.special.starts_with("%ctaid") ||
                                       fixed.special.starts_with("%cluster") || fixed.special == "%smid"
                                 : fixed.value == 0;
    if (!first && !changes) continue;
    switch (fixed.bytes) {
      case 0:
        warp.predicate(fixed.row) = fixed.value != 0 ? kAllLanes : 0;
        break;
      case 2:
        fill<std::uint16_t>(warp, fixed, place);
        break;
      case 4:
        fill<std::uint32_t>(warp, fixed, place);
        break;
      default:
        fill<std::uint64_t>(warp, fixed, place);
    }
  }
}

}  // namespace sparsekiln::emulator
