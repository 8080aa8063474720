#pragma once

#include "sddmm_warpgroups.cuh"

// SDDMM on the tensor cores of sm_90a, accumulated in float32, for blocks of 64 and 128 outputs and inputs.
//
// dy is A, and x is B. Both are contiguous along the rows and columns of a product and not along k, which is
// the batch: wgmma transposes them as it reads them. A place of the ring is a chunk of batch rows of dy and,
// after it, of the blocks of x that a run has, in boxes of 64 features: rows of 128 bytes, one for each batch
// row. A box that a run lacks is outside of x, and becomes zeros, as do batch rows after the last one.
//
// One warp goes through the runs of a worker, the pairs and the chunks, and has the copy engine fill the
// ring ahead (ring.cuh). Two warpgroups multiply: each has half of the outputs of a run, or, of 64, half of
// its inputs. While they store a run, the ring is filled with what the next one multiplies.
//
// Exact order: as the hardware adds 16 batch rows, in ascending order of pairs and batch rows.

namespace sparsekiln {

/// The ring of a CTA, and what BiasSums asks of stages.
template <class Config>
struct SddmmRing {
  enum : int {
    kBoxFeatures = 64,
    kLineBytes = 128,  ///< of a row of a box
    kBytesBox = Config::chunk * kLineBytes,
    kBoxesDy = Config::block_out / kBoxFeatures,
    kBoxesBlock = Config::block_in / kBoxFeatures,
    kBytesPlace = (kBoxesDy + Config::width * kBoxesBlock) * kBytesBox,
    kThreads = Warpgroups::kThreads,  ///< that read stages
  };
  using Place = RingPlace<Config::stages>;
  /// The layout of dy.
  struct RowsDy {
    __device__ static __forceinline__ unsigned offset(unsigned row, unsigned unit) {
      return unit / 8 * kBytesBox + row * kLineBytes + (unit % 8 ^ row % 8) * 16;
    }
  };

  const unsigned tiles = swizzled_shared();
  const RingBarriers<Config::stages> barriers;

  __device__ __forceinline__ unsigned dy(int place) const { return tiles + place * kBytesPlace; }
  __device__ __forceinline__ unsigned x(int place) const { return dy(place) + kBoxesDy * kBytesBox; }

  __device__ static __forceinline__ void sync() { Warpgroups::sync(); }
  /// That copies do not write to.
  __device__ static __forceinline__ unsigned free_memory() {
    __shared__ float memory[2 * kThreads];
    return static_cast<unsigned>(__cvta_generic_to_shared(memory));
  }
};

/// The runs of a worker, one after the other, and the columns of their blocks: those are read while the run
/// before is copied, and where they are, while the one before that is.
template <class Config>
class RunsAhead {
 public:
  using Table = typename Config::Table;

  BlockRun run;
  int column[Config::width];  ///< -1 where the run has no such block

  __device__ __forceinline__ RunsAhead(const Table& from, int first, int runs_end)
      : table(from), item(first), end(runs_end) {
    run = read(item);
    next = read(item + 1);
    read_columns(column, run);
    look();
  }
  __device__ __forceinline__ bool done() const { return item >= end; }
  __device__ __forceinline__ void advance() {
    ++item;
    run = next;
    next = later;
#pragma unroll
    for (int i = 0; i < Config::width; ++i) column[i] = next_column[i];
    look();
  }

 private:
  __device__ __forceinline__ void look() {
    later = read(item + 2);
    read_columns(next_column, next);
  }
  __device__ __forceinline__ BlockRun read(int number) const {
    return number < end ? table.run(number) : BlockRun{0, 0, 0, 0};
  }
  __device__ __forceinline__ void read_columns(int (&columns)[Config::width], const BlockRun& of) const {
#pragma unroll
    for (int i = 0; i < Config::width; ++i) columns[i] = i < of.blocks ? table.column(of.first + i) : -1;
  }

  const Table& table;
  int item;
  const int end;
  BlockRun next;   ///< the run after this one
  BlockRun later;  ///< the one after that
  int next_column[Config::width];
};

/// Fills the ring: a warp of which one thread queues copies.
template <class Config>
class SddmmProducer {
 public:
  using Ring = SddmmRing<Config>;

  __device__ __forceinline__ explicit SddmmProducer(const Ring& to) : ring(to) {}

  /// The chunks of a run, of n batch rows of each pair. Maps are of x and dy of each pair that may be.
  template <class... Maps>
  __device__ __forceinline__ void load(const RunsAhead<Config>& runs, int pairs, int n, const Maps&... maps) {
#pragma unroll 1
    for (int pair = 0; pair < pairs; ++pair) {
      const TensorMap* const map_x = map_at(2 * pair, maps...);
      const TensorMap* const map_dy = map_at(2 * pair + 1, maps...);
#pragma unroll 1
      for (int first = 0; first < n; first += Config::chunk) {
        if (ptx::is_elected()) load_chunk(runs.run.row, runs.column, first, *map_x, *map_dy);
        at.advance();
      }
    }
  }

 private:
  __device__ __forceinline__ void load_chunk(int row, const int (&column)[Config::width], int first,
                                             const TensorMap& map_x, const TensorMap& map_dy) {
    const unsigned full = ring.barriers.full(at.place);
    ring.barriers.expect(at.place, at.parity, Ring::kBytesPlace);
#pragma unroll
    for (int box = 0; box < Ring::kBoxesDy; ++box)
      ptx::copy_box<1>(ring.dy(at.place) + box * Ring::kBytesBox, map_dy,
                       row * Config::block_out + box * Ring::kBoxFeatures, first, full);
#pragma unroll
    for (int box = 0; box < Config::width * Ring::kBoxesBlock; ++box)
      ptx::copy_box<1>(
          ring.x(at.place) + box * Ring::kBytesBox, map_x,
          column[box / Ring::kBoxesBlock] * Config::block_in + box % Ring::kBoxesBlock * Ring::kBoxFeatures,
          first, full);
  }

  const Ring& ring;
  typename Ring::Place at = Ring::Place::first();  ///< that is filled next
};

/// Where a warpgroup's operands are: 64 outputs, and kColumns inputs. Addresses are those of one lane, so
/// that descriptors are uniform.
template <class Config>
struct SddmmOperands {
  using Ring = SddmmRing<Config>;
  enum : int {
    kWarpgroupsIn = 2 / Ring::kBoxesDy,
    kColumns = Config::width * Config::block_in / kWarpgroupsIn,
  };
  const unsigned dy;  ///< of the first place
  const unsigned x;

  __device__ __forceinline__ explicit SddmmOperands(const Ring& ring)
      : dy(__shfl_sync(0xffffffff, ring.dy(0) + first_box() * Ring::kBytesBox, 0)),
        x(__shfl_sync(0xffffffff, ring.x(0) + first_column() / Ring::kBoxFeatures * Ring::kBytesBox, 0)) {}

  /// The warpgroup's first box of dy, and its first column of x.
  __device__ static __forceinline__ int first_box() { return kWarpgroupsIn == 2 ? 0 : Warpgroups::own(); }
  __device__ static __forceinline__ int first_column() {
    return kWarpgroupsIn == 2 ? Warpgroups::own() * kColumns : 0;
  }
};

/// The sums of a run as wgmma distributes them over two warpgroups.
template <class Config>
class SddmmSums {
 public:
  using Ring = SddmmRing<Config>;
  using Operands = SddmmOperands<Config>;
  enum : int {
    kInterleave = Config::interleave,
    kSteps = Config::chunk / 16,  ///< instructions along the batch rows of a chunk
    // NOTES: twice, since ptxas moves descriptors to the products past the first branch, if there are many
    // sums (13.0; bench/sass.py).
    kWaits = 2,
  };

  __device__ __forceinline__ explicit SddmmSums(const Operands& of) : operands(of) {
    clear_sums(sums);
    pin();
  }
  __device__ __forceinline__ void point_at(int place) {
    dy.point_at(operands.dy + place * Ring::kBytesPlace);
    x.point_at(operands.x + place * Ring::kBytesPlace, Ring::kBytesBox);
  }
  __device__ __forceinline__ void multiply() {
    ptx::begin_products();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::queue_product<Config::operands, 1, 1>(sums, dy.of[step], x.of[step], 1);
    ptx::commit_products();
  }
  __device__ __forceinline__ void pin() { ptx::pin(sums); }

  /// Writes dw of the blocks that the run has.
  __device__ __forceinline__ void store(const BlockRun& run, typename Config::Output::Element* dw,
                                        const SddmmEpilogue<Config>& epilogue) const {
    enum : int { kOfBlock = Config::block_out * Config::block_in };
    const int row = Operands::first_box() * Ring::kBoxFeatures + fragment_row(lane);
    const int first_block = Operands::first_column() / Config::block_in;
    auto *const to = dw + static_cast<long long>(run.first + first_block) * kOfBlock +
                         row * Config::block_in + Operands::first_column() % Config::block_in +
                         fragment_column <
                     kInterleave,
                kInterleave == 4 > (lane, 0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < Operands::kColumns / 4; i += kInterleave) {
        float values[kInterleave];
        copy_values(sums, half, i, values);
        gather_columns(lane, values);
        const int column = 4 * i;  // of the four lanes of a row
        const int block = column / Config::block_in;
        if (first_block + block >= run.blocks) continue;
        write_scaled(to + half * 8 * Config::block_in + block * kOfBlock + column % Config::block_in, values,
                     epilogue);
      }
    }
  }

 private:
  /// A step along dy or x is 16 batch rows.
  using Descriptors = StepDescriptors<Ring::kLineBytes, kSteps, 2 * swizzled_unit(Ring::kLineBytes) / 16>;

  const Operands& operands;
  const int lane = static_cast<int>(threadIdx.x % 32);
  float sums[Operands::kColumns / 2];
  Descriptors dy;  ///< of the chunk that is multiplied next
  Descriptors x;
};

/// Config names what `sddmm` needs of linear layers of whole blocks, without block scales and derivatives;
/// interleave (neighbouring inputs of a thread, of 8 bytes) and operands (a ptx::WgmmaOperands). Maps are of
/// x and dy of each pair in turn, in boxes of a chunk's batch rows and 64 features.
template <class Config, class... Maps>
__device__ __forceinline__ void sddmm_wgmma(const ActivationPairs& pairs,
                                            typename Config::Output::Element* dw, int n, long long, long long,
                                            long long, const SddmmEpilogue<Config>& epilogue,
                                            typename Config::Table table, const Maps&... maps) {
  const int worker = static_cast<int>(blockIdx.x);
  const int first = table.worker(worker);
  const int end = table.worker(worker + 1);
  const SddmmRing<Config> ring;
  begin_ring<Config, Warpgroups::kWarps>(ring, true);
  Warpgroups::run(
      [&] {
        SddmmProducer<Config> producer(ring);
#pragma unroll 1
        for (RunsAhead<Config> runs(table, first, end); !runs.done(); runs.advance())
          producer.load(runs, pairs.count, n, maps...);
      },
      [&] {
        const SddmmOperands<Config> operands(ring);
        const int chunks = pairs.count * ((n + Config::chunk - 1) / Config::chunk);
        auto at = SddmmRing<Config>::Place::before_first();  // that is read
#pragma unroll 1
        for (int item = first; item < end; ++item) {
          const BlockRun run = table.run(item);
          const bool sums_dy = Config::has_bias_gradient && run.first_of_row != 0;
          SddmmSums<Config> sums(operands);
          BiasSums<Config, SddmmRing<Config>> bias;
          if constexpr (Config::has_bias_gradient) bias.clear();
          multiply_chunks<Config::has_bias_gradient>(ring, at, chunks, sums, [&](int place) {
            if (Config::has_bias_gradient && sums_dy) bias.add(ring.dy(place));
          });
          if (Config::has_bias_gradient && sums_dy)
            bias.sum([&](int out, float sum) { store_bias(run, epilogue, out, sum); });
          sums.store(run, dw, epilogue);
        }
      });
}

}  // namespace sparsekiln
