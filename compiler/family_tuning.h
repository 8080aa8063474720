#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include <sparsekiln/config.h>
#include <sparsekiln/target.h>

// What the tuner asks of a family of kernels, on any target. It decides which configs are tried and chosen,
// never what a config computes: digest_sources.py leaves it out.

namespace sparsekiln {

/// An item's output tiles, and the block rows of each: Config::rows and Config::merge.
struct ItemTiles {
  std::int32_t rows;
  std::int32_t merge;
};

/// The CTAs of a cluster: Config::cluster and Config::cluster_rows.
struct ClusterShape {
  std::int32_t tiles;
  std::int32_t rows;
};

/// The values of a config's numbers that the tuner tries. A family's space is their product, less what
/// constraints and the compiler refuse.
struct SearchAxes {
  std::initializer_list<std::int32_t> tile_n;
  std::initializer_list<std::int32_t> tile_out;
  std::initializer_list<std::int32_t> stages;
  std::initializer_list<std::int32_t> warps;
  std::initializer_list<std::int32_t> split;
  std::initializer_list<ItemTiles> tiles;
  std::initializer_list<TableForm> table;
  std::initializer_list<OperandA> operand_a;
  /// Empty: no clusters. Not a list of one as the default: the array of a default member's list need not live
  /// as long as a constant that has it (CWG 1815), and does not with clang.
  std::initializer_list<ClusterShape> clusters = {};
  std::initializer_list<std::array<std::int32_t, kMostKnobs>> knobs = {};  ///< empty: all 0
};

/// For one kind of problem: Computed is Spmm or Sddmm.
template <class Computed>
struct FamilyTuning {
  Variant variant;
  SearchAxes axes;
  /// Why a config within the axes is never worth a try, though it may work; null where it may be the fastest.
  const char* (*rejection)(const Computed&, const Target&, const Config&);
  /// Those among which the cost model chooses where nothing was measured: few, since every compile of a new
  /// problem prices them all. The cpu's defaults are rules (autotune/cpu/defaults).
  SearchAxes default_axes = {};
  /// Entries of the largest batch that its kernels are worth a try for.
  std::int64_t most_batch = std::numeric_limits<std::int64_t>::max();
  std::int64_t least_batch = 0;  ///< and of the smallest
};

/// For families that reject nothing.
template <class Computed>
[[nodiscard]] const char* rejects_nothing(const Computed&, const Target&, const Config&) {
  return nullptr;
}

}  // namespace sparsekiln
