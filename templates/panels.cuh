#pragma once

#include "ptx.cuh"
#include "ptx_mma.cuh"

// x in panels, one for each block column: the features that its blocks are multiplied with, of all rows of a
// batch tile, [batch tile][block column][tile_n][block_in]. Eight rows of a small block are one line of
// memory there, where they are eight in x. A kernel before the product copies x to the workspace, with the
// grid of the product.

namespace sparsekiln {

template <class Config>
struct Panels {
  using Element = typename Config::Element;
  enum : int {
    kRowBytes = Config::block_in * static_cast<int>(sizeof(Element)),
    kBytes = Config::tile_n * kRowBytes,  ///< of a block column
  };
  /// A batch tile has them at the end of its place in the workspace.
  __device__ static __forceinline__ char* of(const typename Config::Table& table, void* workspace, int tile) {
    return static_cast<char*>(workspace) + table.counter_bytes() + (tile + 1) * table.tile_bytes() -
           static_cast<long long>(table.columns()) * kBytes;
  }
};

/// Copies x to panels. Rows of a tile that have no batch row become zeros, and so does what the last block
/// column has beyond the features of x. A warp copies eight rows of 64
/// bytes at a time. Config names block_in, in_features, tile_n, threads, the Table, whether the product may
/// begin before this has ended (overlaps), and whether this may before the launch before has
/// (first_overlaps).
template <class Config>
__device__ __forceinline__ void copy_to_panels(const typename Config::Element* x, void* workspace, int n,
                                               long long x_stride, typename Config::Table table) {
  using All = Panels<Config>;
  enum : int { kUnit = 16, kRowUnits = All::kRowBytes / kUnit, kRows = 8, kWarps = Config::threads / 32 };
  if constexpr (Config::first_overlaps) ptx::wait_for_earlier_launches();
  if constexpr (Config::overlaps) ptx::let_next_launch_begin();
  const int units = table.columns() * kRowUnits;  // of a row
  const int units_of_x =
      Config::in_features == 0 ? units : Config::in_features * sizeof(typename All::Element) / kUnit;
  const int jobs = (units + 3) / 4 * (Config::tile_n / kRows);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int tiles = (n + Config::tile_n - 1) / Config::tile_n;
  for (int tile = static_cast<int>(blockIdx.y); tile < tiles; tile += static_cast<int>(gridDim.y)) {
    char* const to = All::of(table, workspace, tile);
    for (int job = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32; job < jobs;
         job += static_cast<int>(gridDim.x) * kWarps) {
      const int row = job % (Config::tile_n / kRows) * kRows + lane % kRows;
      const int unit = job / (Config::tile_n / kRows) * 4 + lane / kRows;
      if (unit >= units) continue;
      const int batch_row = tile * Config::tile_n + row;
      unsigned words[4] = {0, 0, 0, 0};
      if (batch_row < n && unit < units_of_x)
        ptx::load_global(reinterpret_cast<const char*>(x + batch_row * x_stride) + unit * kUnit, words);
      ptx::store_global(to + static_cast<long long>(unit / kRowUnits) * All::kBytes + row * All::kRowBytes +
                            unit % kRowUnits * kUnit,
                        words);
    }
  }
}

}  // namespace sparsekiln
