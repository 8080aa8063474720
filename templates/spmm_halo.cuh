#pragma once

#include "halo_producer.cuh"
#include "lattice.cuh"
#include "output.cuh"
#include "product.cuh"
#include "ptx_mma.cuh"
#include "ptx_wgmma.cuh"
#include "spmm_warpgroups.cuh"
#include "wgmma_descriptors.cuh"
#include "wgmma_fragment.cuh"

// Convolutions on the tensor cores of sm_90a. A tile is a rectangle of an image's positions, eight wide, and
// a stage of x is that rectangle with the border that its taps reach (halo_rings.cuh). Eight neighbouring
// positions of a row are a group of eight columns of wgmma's B, and the groups of a tile are one row of the
// stage apart: so a tap's operand is the same stage from a later position on, by a descriptor that begins
// there.
//
//   stage, one position a line of 64 bytes          tap (1, 2): columns of B
//
//     . . . . . . . . . .                            . . . . . . . . . .
//     . x x x x x x x x .                            . . 0 1 2 3 4 5 6 7
//     . x x x x x x x x .                            . . 8 9 . . .
//     . . . . . . . . . .                            . . . .
//
// W is A: 64 outputs of a warpgroup, which are those of merged block rows, are the rows of its sums. Each of
// the two warpgroups has an output tile of its own, or half of one that both share.

namespace sparsekiln {

/// What an item is written from: the sums of 64 outputs and all positions of a tile, as wgmma distributes
/// them over a warpgroup (PTX ISA, "Register Fragments and Shared Memory Matrix Layouts": D of m64nNk16).
template <class Config>
struct HaloSums {
  using Rings = HaloRings<Config>;
  enum : int {
    kSums = Config::tile_n / 2,
    kRows = 1,
    kN = Config::tile_n / 8,  ///< points of a thread: one of each row of the tile
    kOut = 4,
    kRun = 4,  ///< in the order that the map of W, or the exchange of lanes, makes
    kHolders = Warpgroups::kThreads,
  };

  const int lane = static_cast<int>(threadIdx.x % 32);
  const HaloPlace<Config>& place;
  float sums[kSums];

  __device__ __forceinline__ explicit HaloSums(const HaloPlace<Config>& of) : place(of) { clear_sums(sums); }
  /// The copy engine reorders rows of W for it (sparsekiln::TensorMap::interleave). Columns of W stay as they
  /// are, but lanes exchange halves.
  __device__ __forceinline__ int out_of(int i) const {
    const int warp = static_cast<int>(threadIdx.x / 32 % (Rings::kSharers * 4));
    return warp * 16 + fragment_column<kRun, Config::by_columns>(lane, i);
  }
  __device__ __forceinline__ float& at(int, int j, int i) { return sums[j * kOut + i]; }
  __device__ __forceinline__ float at(int, int j, int i) const { return sums[j * kOut + i]; }
  __device__ __forceinline__ void pin() { ptx::pin(sums); }
  /// Distributes sums as `out_of` and `n_of` say. Until then a thread has neighbouring positions of an
  /// output.
  __device__ __forceinline__ void gather() {
#pragma unroll
    for (int j = 0; j < kN; ++j) {
#pragma unroll
      for (int half = 0; half < kOut; half += 2) ptx::transpose(at(0, j, half), at(0, j, half + 1));
      if constexpr (Config::by_columns) {
#pragma unroll
        for (int i = 0; i < kOut / 2; ++i) exchange_halves(lane, at(0, j, i), at(0, j, i + kOut / 2));
      }
    }
  }
};

/// A thread has the same column of each row of the tile. Each class of points has positions of y of its own.
template <class Config>
struct RowsOfY<Config, HaloSums<Config>> {
  using Sums = HaloSums<Config>;
  enum : int { kNoRow = 0x7fffffff };
  int d, h, w;  ///< of the first one, from Destination::y on

  __device__ __forceinline__ RowsOfY(const Sums& tile, const Destination<Config>&, int row_of_b) {
    const int of_class = row_of_b % Lattice<Config>::kClasses;
    d = of_class / (Config::out_step_h * Config::out_step_w);
    h = of_class / Config::out_step_w % Config::out_step_h;
    w = of_class % Config::out_step_w + tile.lane / 4 * Config::out_step_w;
  }
  __device__ __forceinline__ bool has(const Sums& tile, const Destination<Config>&, int j) const {
    return of(tile, j) < kNoRow;
  }
  // NOTES: which row depends on whether there is one. Otherwise ptxas would compute the addresses of all rows
  // before it stores the first one, and have no registers for them.
  __device__ __forceinline__ int of(const Sums& tile, int j) const {
    const int down = h + j * Config::out_step_h;
    const bool exists =
        d < tile.place.depth_left() && down < tile.place.height_left() && w < tile.place.width_left();
    return exists ? (d * Config::output_h + down) * Config::output_w + w : int{kNoRow};
  }
  __device__ static __forceinline__ int first(const Destination<Config>& to) { return to.first; }
};

/// The threads that multiply combine the parts of an item.
template <class Config>
struct Combiners<HaloSums<Config>> {
  __device__ static __forceinline__ void sync() { Warpgroups::sync(); }
};

/// The block rows of the output tile that a warpgroup has of an item.
template <class Config>
struct HaloItemPlace {
  const typename Config::Table* table;
  int item;

  __device__ __forceinline__ HaloItemPlace(const typename Config::Table& from, int of)
      : table(&from), item(of) {}
  /// `place`: from the item's number times Config::merge on.
  __device__ __forceinline__ int row(int place) const {
    const int skipped = item * (Config::rows - 1) + HaloRings<Config>::own_ring();
    return table->row(place + skipped * Config::merge);
  }
  __device__ __forceinline__ int split(int) const { return table->split(item); }
};

/// Where a warp that multiplies is in the rings.
template <class Config>
class HaloReader {
 public:
  using Rings = HaloRings<Config>;
  using Box = typename Rings::Box;
  using Sums = HaloSums<Config>;

  __device__ __forceinline__ explicit HaloReader(const Rings& from)
      : rings(from),
        first_x(__shfl_sync(0xffffffff, from.x(0), 0)),
        first_w(__shfl_sync(0xffffffff,
                            from.w(Rings::number_of(ring, 0)) + Rings::own_half() * int{Rings::kBytesOfGroup},
                            0)) {}

  /// Adds the products of an item, and waits for them. Each step is waited for, and its products are
  /// queued; then the operands of the step before it are given back.
  __device__ __forceinline__ void add(Sums& tile) {
#pragma unroll 1
    for (;;) {
      w.advance();
      ptx::wait_for_phase(rings.full_w(ring, w.place), w.parity);
      const HaloStep step{__shfl_sync(0xffffffff, *rings.step(ring, w.place), 0)};
      if (step.releases()) {
        release_all(w.place);
        if (step.ends()) break;
        continue;
      }
      StepDescriptors<Rings::kLineBytes, 2, 2, Box::kPitch> of_x[Rings::kBoxes];
      StepDescriptors<Rings::kLineBytes, 2, Rings::kStepW> of_w[Rings::kBoxes];
#pragma unroll
      for (int box = 0; box < Rings::kBoxes; ++box) {
        of_x[box].point_at(first_x + step.place() * Rings::kBytesX + box * Box::kBytes + step.displacement());
        of_w[box].point_at(first_w + w.place * Rings::kBytesW + box * Rings::kBoxBytesW,
                           Config::by_columns ? int{Rings::kColumnBytes} : 0);
      }
      // NOTES: all that is needed after the products is computed before the wait: ptxas would put it between
      // them.
      const unsigned given_x = computed_here(step.brings_x() ? read_x : rings.unused());
      const unsigned next_w = computed_here(rings.empty_w(ring, w.place));
      const unsigned next_x = computed_here(rings.empty_x(step.place()));
      ptx::wait_for_phase(rings.full_x(step.place()), step.parity());
      ptx::begin_products();
#pragma unroll
      for (int box = 0; box < Rings::kBoxes; ++box)
#pragma unroll
        for (int k = 0; k < 2; ++k)
          ptx::queue_product<Config::operands, 0, Config::by_columns>(tile.sums, of_w[box].of[k],
                                                                      of_x[box].of[k], 1);
      ptx::commit_products();
      ptx::wait_products<1>();
      __syncwarp();  // all lanes have read the step
      release(read_w);
      release(given_x);
      read_w = next_w;
      read_x = next_x;
    }
    tile.pin();
  }

 private:
  /// Waits for all products, and gives everything back, also the place of a step that has none.
  __device__ __forceinline__ void release_all(int place) {
    ptx::wait_products<0>();
    __syncwarp();
    release(read_w);
    release(read_x);
    release(rings.empty_w(ring, place));
    read_w = read_x = rings.unused();
  }

  const Rings& rings;
  const int ring = Rings::own_ring();
  const unsigned first_x;
  const unsigned first_w;
  typename Rings::PlaceW w = Rings::PlaceW::before_first();
  unsigned read_w = rings.unused();  ///< by products that were queued: empty barriers
  unsigned read_x = rings.unused();
};

/// Where the outputs of a tile are written.
template <class Config>
__device__ __forceinline__ Destination<Config> destination_of(typename Config::Output::Element* y,
                                                              long long y_stride, void* workspace, int number,
                                                              const HaloPlace<Config>& place,
                                                              const Images<Config>& images,
                                                              const EpilogueArguments<Config>& epilogue) {
  const int first = place.row_of_y();
  constexpr int kAll = 0x7fffffff;  // RowsOfY knows which positions exist
  Destination<Config> to{y + first * y_stride, y_stride, first, kAll, workspace, number, images, epilogue};
  to.epilogue.residual += first * epilogue.residual_stride;
  return to;
}

/// Calls use(tile) for the tiles of positions of a CTA, of so many.
template <class Use>
__device__ __forceinline__ void each_tile_of_cta(int tiles, Use use) {
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.y); tile < tiles; tile += static_cast<int>(gridDim.y)) use(tile);
}

/// Config names stages (of x) and stages_w (steps of an output tile) of the rings, what a HaloBox needs,
/// operands (a ptx::WgmmaOperands), the Product, and what `spmm` needs. Maps are of x in boxes of 32 features
/// of a stage's positions, and of W in boxes of a block's rows and 64 bytes.
template <class Config>
__device__ __forceinline__ void spmm_halo(const typename Config::Element*, const typename Config::Element* w,
                                          typename Config::Output::Element* y, void* workspace, int n,
                                          long long, long long y_stride,
                                          const EpilogueArguments<Config>& epilogue,
                                          typename Config::Table table, const TensorMap& map_x,
                                          const TensorMap& map_w) {
  using Place = HaloPlace<Config>;
  const int worker = worker_of_round<Config>(0);  // of all rounds: another one would take a register
  const Images<Config> images(epilogue.images);
  const HaloRings<Config> rings;
  begin_rings<Config>(rings, table, w, epilogue);
  const int tiles = n * Place::kOfImage;
  Warpgroups::run<HaloRings<Config>::kRings + 1, 88>(
      [&] {
        const int number = static_cast<int>(threadIdx.x / 32) - Warpgroups::kWarps;
        if (number < HaloRings<Config>::kRings) {
          HaloWeights<Config> weights(rings, table, worker, number);
          each_tile_of_cta(tiles, [&](int) { weights.load(map_w); });
        } else {
          HaloImages<Config> stages(rings, table, worker);
          each_tile_of_cta(tiles, [&](int tile) { stages.load(Place(tile), map_x); });
        }
      },
      [&] {
        HaloReader<Config> reader(rings);
        each_tile_of_cta(tiles, [&](int tile) {
          const Place place(tile);
          const Destination<Config> to =
              destination_of<Config>(y, y_stride, workspace, tile, place, images, epilogue);
          const int end = table.worker(worker + 1).item;
#pragma unroll 1
          for (int item = table.worker(worker).item; item < end; ++item) {
            HaloSums<Config> sums(place);
            reader.add(sums);
            sums.gather();
            finish(table, item, HaloItemPlace<Config>(table, item), sums, to);
          }
        });
      });
}

}  // namespace sparsekiln
