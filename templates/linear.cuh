#pragma once

#include "epilogue.cuh"
#include "schedule.cuh"

// The walk of one CTA over its work, whatever loads the operands and multiplies them.

namespace sparsekiln {

/// One CTA: worker blockIdx.x, batch tiles blockIdx.y, + gridDim.y, …
///
/// Config names block_out, tile_n, threads, the Table, the Output, and the workspace. Operands is made for
/// each batch tile from (first element of x, w, x_stride, batch entries that exist) and runs ahead through
/// the chunks of the worker's items; for each of them Tile adds its products.
template <class Config, class Operands, class Tile>
__device__ __forceinline__ void linear(const typename Config::Element* __restrict__ x,
                                       const typename Config::Element* __restrict__ w,
                                       typename Config::Output::Element* __restrict__ y, void* workspace,
                                       int n, long long x_stride, long long y_stride) {
  using Table = typename Config::Table;
  const int tiles = (n + Config::tile_n - 1) / Config::tile_n;
  const int worker = static_cast<int>(blockIdx.x);
  const int items_end = Table::worker_begin(worker + 1);

  for (int batch_tile = static_cast<int>(blockIdx.y); batch_tile < tiles;
       batch_tile += static_cast<int>(gridDim.y)) {
    const long long first_n = static_cast<long long>(batch_tile) * Config::tile_n;
    const int valid = n - static_cast<int>(first_n);
    auto* const y_tile = y + first_n * y_stride;
    Operands operands(x + first_n * x_stride, w, x_stride, valid);
    Tile tile;
    for (int index = Table::worker_begin(worker); index < items_end; ++index) {
      const Item item = Table::item(index);
      tile.clear();
      for (int chunk = Operands::chunks(item.steps); chunk > 0; --chunk) {
        operands.acquire();
        tile.multiply(operands);
        operands.release();
      }
      bool whole = true;
      if constexpr (Config::splits) {
        if (item.split >= 0) {
          auto* const counters = static_cast<unsigned*>(workspace) + batch_tile * Config::counters;
          char* const partials =
              static_cast<char*>(workspace) + Config::counter_bytes + batch_tile * Config::tile_bytes;
          whole = combine<Config::threads>(tile, Table::split(item.split), counters,
                                           reinterpret_cast<float*>(partials));
        }
      }
      if (whole)
        store<typename Config::Output>(tile, y_tile + static_cast<long long>(item.output) * Config::block_out,
                                       y_stride, valid);
    }
    __syncthreads();  // the next tile's copies overwrite what slower threads still read
  }
}

}  // namespace sparsekiln
