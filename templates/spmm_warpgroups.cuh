#pragma once

#include "requirements.cuh"
#include "ring.cuh"
#include "spmm.cuh"
#include "wgmma_descriptors.cuh"

// What the variants of SpMM have in common whose warpgroups share rings of x and W (ring.cuh).

namespace sparsekiln {

/// By all threads, before all else: makes the barriers of rings, and waits for earlier launches.
template <class Config, class Rings>
__device__ __forceinline__ void begin_rings(const Rings& rings, const typename Config::Table& table,
                                            const typename Config::Element* w,
                                            const EpilogueArguments<Config>& epilogue) {
  if (threadIdx.x == 0) rings.make_barriers();
  if constexpr (Config::overlaps) wait_with_weight_ahead<Config, BlockChunks>(table, w, epilogue.v);
  rings.sync();
}

/// A kernel whose CTAs go through batch tiles. One warp is a Producer: load(worker, first, maps…) fills Rings
/// for a batch tile from its first row on. Those that multiply are Readers: multiply_items(table, worker,
/// exists, to) adds the products of the worker and finishes its items.
template <class Config, class Rings, class Producer, class Reader, class... Weights>
__device__ __forceinline__ void spmm_in_warpgroups(const typename Config::Element* w,
                                                   typename Config::Output::Element* y, void* workspace,
                                                   int n, long long y_stride,
                                                   const EpilogueArguments<Config>& epilogue,
                                                   const typename Config::Table& table,
                                                   const TensorMap& map_x, const Weights&... maps_w) {
  const Images<Config> images(epilogue.images);
  const Rings rings;
  begin_rings<Config>(rings, table, w, epilogue);
  // Each CTA of a cluster goes through as many tiles as the first one, beyond the last row if need be. `n` is
  // a parameter, so that comparing rows takes no register, as the number of tiles would.
  const auto is_before_end = [n](int batch_tile) {
    return static_cast<unsigned>(batch_tile) * Config::tile_n < static_cast<unsigned>(n);
  };
  const int rank = static_cast<int>(blockIdx.y) % Config::cluster;
  Rings::Groups::run(
      [&] {
        Producer producer(rings, table);
#pragma unroll 1
        for (unsigned round = 0;; ++round) {
          const int batch_tile = static_cast<int>(blockIdx.y + round * gridDim.y);
          if (!is_before_end(batch_tile - rank)) break;
          producer.load(worker_of_round<Config>(round), batch_tile * Config::tile_n, map_x, maps_w...);
        }
      },
      [&] {
        Reader reader(rings);
#pragma unroll 1
        for (unsigned round = 0;; ++round) {
          // Made of a counter that is uniform: as the loop's variable it takes a register, which sums lack.
          const int batch_tile = static_cast<int>(blockIdx.y + computed_here(round) * gridDim.y);
          if (!is_before_end(batch_tile - rank)) break;
          reader.multiply_items(
              table, worker_of_round<Config>(computed_here(round)), is_before_end(batch_tile),
              destination_of<Config>(y, y_stride, workspace, n, batch_tile, images, epilogue));
        }
      });
  // No CTA ends while another may arrive on its barriers.
  if constexpr (Rings::kCtas > 1) rings.sync();
}

}  // namespace sparsekiln
