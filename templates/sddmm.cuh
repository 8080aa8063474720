#pragma once

#include "entry_rows.cuh"
#include "load_entries.cuh"
#include "load_features.cuh"
#include "output.cuh"
#include "ptx.cuh"
#include "ptx_mma.cuh"

// Gradient of the weight of a block-sparse linear layer, dw = Σ over pairs of dyᵀ · x on present blocks.
//
// A worker goes through its runs of blocks (compiler/block_runs.h). The CTA computes a run at once: a tile of
// block_out × (width · block_in) sums, width · block_in columns of x gathered side by side. It streams the
// batch entries of all pairs through shared memory in chunks, and every chunk serves all of the run's blocks.
// Which of a chunk's entries a thread adds is the tile's to say: the kParts sums that an element of dw then
// has are added in ascending order, so dw depends on nothing but the inputs and the config.

namespace sparsekiln {

/// What comes after the sums.
template <class Config>
struct SddmmEpilogue {
  float alpha = 1;
  float beta = 0;
  float* dbias = nullptr;
  const float* gates = nullptr;
  float* dgates = nullptr;
  const typename Config::Element* w = nullptr;
};

/// alpha · sum + beta · old, of which old is read where it counts.
template <class Config>
__device__ __forceinline__ float scaled_sum(const SddmmEpilogue<Config>& ends, float sum, const float* old) {
  if constexpr (!Config::scales) return sum;
  const float value = ends.alpha * sum;
  return ends.beta == 0 ? value : __fmaf_rn(ends.beta, *old, value);
}

/// The sums of a run in shared memory, [block_out][width · block_in].
template <class Config>
struct SddmmSums {
  enum : int {
    kColumns = Config::width * Config::block_in,
    kRun = 16 / static_cast<int>(sizeof(typename Config::Output::Element)),
    kQuads = kRun / 4,
    kOfBlock = Config::block_out * Config::block_in,
  };
  using Rows = EntryRows<kColumns / 4, 4>;

  __device__ static __forceinline__ unsigned place(int row, int column) {
    return ptx::dynamic_shared() +
           Rows::offset(static_cast<unsigned>(row), static_cast<unsigned>(column) / 4) +
           static_cast<unsigned>(column) % 4 * 4;
  }
  /// Elements from `element` on of block `block` of the run. Where a run has two quads, lanes take turns in
  /// which of them they read first, so that each time 8 lanes read 8 quads of different banks.
  __device__ static __forceinline__ void read(int block, int element, float (&run)[kRun]) {
    const int row = element / Config::block_in;
    const int column = block * Config::block_in + element % Config::block_in;
    float quad[kQuads][4];
    const int turn = kQuads == 1 ? 0 : static_cast<int>(threadIdx.x) / 4 % 2;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) ptx::load_shared<0>(quad[q], place(row, column + (q ^ turn) * 4));
#pragma unroll
    for (int v = 0; v < kRun; ++v)
      run[v] = kQuads == 1 ? quad[0][v] : (v / 4 == turn ? quad[0][v % 4] : quad[kQuads - 1][v % 4]);
  }
};

/// What of a block exists, where the last block row or column is cut.
template <class Config>
struct BlockExtent {
  enum : bool { kCut = Config::in_features != 0 || Config::out_features != 0 };
  int outs = Config::block_out;
  int ins = Config::block_in;

  __device__ __forceinline__ BlockExtent(int row, int column) {
    if constexpr (Config::out_features != 0) outs = Config::out_features - row * Config::block_out;
    if constexpr (Config::in_features != 0) ins = Config::in_features - column * Config::block_in;
  }
  /// Element `element` of the block.
  __device__ __forceinline__ bool has(int element) const {
    return element / Config::block_in < outs && element % Config::block_in < ins;
  }
};

/// dw of a run. Its blocks are neighbours in memory: the threads write them from end to end, 16 bytes each.
/// Beyond a cut they write zeros.
template <class Config>
__device__ __forceinline__ void store_run(const BlockRun& run, typename Config::Output::Element* dw,
                                          const SddmmEpilogue<Config>& ends,
                                          const typename Config::Table& table) {
  using Sums = SddmmSums<Config>;
  enum : int { kRun = Sums::kRun, kOfBlock = Sums::kOfBlock / kRun };
  auto* const to = dw + static_cast<long long>(run.first) * Sums::kOfBlock;
  const int end = run.blocks * kOfBlock;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < end; i += Config::threads) {
    const int block = i / kOfBlock;
    float values[kRun];
    Sums::read(block, i % kOfBlock * kRun, values);
    float scale = ends.alpha;
    if constexpr (Config::has_gates) scale *= ends.gates[run.first + block];
    if constexpr (Config::scales || Config::has_gates) {
#pragma unroll
      for (int v = 0; v < kRun; ++v) values[v] = Config::has_gates && scale == 0 ? 0.0f : values[v] * scale;
    }
    auto* const place = to + static_cast<long long>(i) * kRun;
    if (Config::scales && ends.beta != 0) {
      float old[kRun];
      Config::Output::read(place, old);
#pragma unroll
      for (int v = 0; v < kRun; ++v) values[v] = __fmaf_rn(ends.beta, old[v], values[v]);
    }
    if constexpr (BlockExtent<Config>::kCut) {
      const BlockExtent<Config> extent(run.row, table.column(run.first + block));
#pragma unroll
      for (int v = 0; v < kRun; ++v) values[v] = extent.has(i % kOfBlock * kRun + v) ? values[v] : 0.0f;
    }
    Config::Output::write(place, values);
  }
}

/// Σ dw · W over each block of a run, one warp a block: lane l adds elements 32 · i + l in ascending order of
/// i, and the lanes' sums are added in pairs, from lanes 16 apart to neighbours.
template <class Config>
__device__ __forceinline__ void store_gate_gradients(const BlockRun& run, const SddmmEpilogue<Config>& ends,
                                                     const typename Config::Table& table) {
  using Sums = SddmmSums<Config>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int block = static_cast<int>(threadIdx.x) / 32; block < run.blocks; block += Config::threads / 32) {
    const auto* const w = ends.w + static_cast<long long>(run.first + block) * Sums::kOfBlock;
    const BlockExtent<Config> extent(run.row,
                                     BlockExtent<Config>::kCut ? table.column(run.first + block) : 0);
    float sum = 0;
#pragma unroll 4
    for (int i = lane; i < Sums::kOfBlock; i += 32) {
      float value[1];
      ptx::load_shared(value,
                       Sums::place(i / Config::block_in, block * Config::block_in + i % Config::block_in));
      if (!BlockExtent<Config>::kCut || extent.has(i))
        sum = __fmaf_rn(value[0], Config::Operand::read(w + i), sum);
    }
    sum += ptx::exchanged<16>(sum);
    sum += ptx::exchanged<8>(sum);
    sum += ptx::exchanged<4>(sum);
    sum += ptx::exchanged<2>(sum);
    sum += ptx::exchanged<1>(sum);
    float* const place = ends.dgates + run.first + block;
    if (lane == 0) *place = scaled_sum(ends, sum, place);
  }
}

/// Sums dy over the batch entries of a block row: of every kGroups-th entry a thread has 4 bytes, and where
/// they are feature-major of every kGroups-th unit the entries of kOuts features.
template <class Config, class Stages>
struct BiasSums {
  enum : int {
    kPerWord = 4 / static_cast<int>(sizeof(typename Config::Element)),
    kOuts = !Config::feature_major                ? int{kPerWord}
            : Config::threads < Config::block_out ? Config::block_out / Config::threads
                                                  : 1,
    kThreads = Config::block_out / kOuts,
    kGroups = Config::threads / kThreads,
    kUnits = Config::chunk / (4 * kPerWord),  ///< of a feature
  };
  const int word = static_cast<int>(threadIdx.x) % kThreads;
  const int group = static_cast<int>(threadIdx.x) / kThreads;
  float sums[kOuts];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int v = 0; v < kOuts; ++v) sums[v] = 0;
  }
  __device__ __forceinline__ void add(unsigned dy) {
    if constexpr (Config::feature_major)
      add_features(dy);
    else
      add_entries(dy);
  }
  /// Adds the groups' sums in ascending order, by way of shared memory that nobody uses any more.
  __device__ __forceinline__ void store(const BlockRun& run, const SddmmEpilogue<Config>& ends) const {
    const unsigned shared = ptx::dynamic_shared();
#pragma unroll
    for (int v = 0; v < kOuts; ++v) {
      const int out = Config::feature_major ? word + v * kThreads : word * kOuts + v;
      ptx::store_shared<0>(shared + static_cast<unsigned>(group * Config::block_out + out) * 4, sums[v]);
    }
    __syncthreads();
    for (int out = static_cast<int>(threadIdx.x); out < Config::block_out; out += Config::threads) {
      float sum = 0;
      for (int g = 0; g < kGroups; ++g) {
        float part[1];
        ptx::load_shared(part, shared + static_cast<unsigned>(g * Config::block_out + out) * 4);
        sum += part[0];
      }
      if (Config::out_features != 0 && run.row * Config::block_out + out >= Config::out_features) continue;
      float* const place = ends.dbias + static_cast<long long>(run.row) * Config::block_out + out;
      *place = scaled_sum(ends, sum, place);
    }
    __syncthreads();
  }

 private:
  __device__ __forceinline__ void add_entries(unsigned dy) {
#pragma unroll 4
    for (int entry = group; entry < Config::chunk; entry += kGroups) {
      unsigned bits;
      ptx::load_word<0>(
          bits, dy + Stages::RowsDy::offset(static_cast<unsigned>(entry), static_cast<unsigned>(word) / 4) +
                    static_cast<unsigned>(word) % 4 * 4);
#pragma unroll
      for (int v = 0; v < kPerWord; ++v) sums[v] += Config::Operand::of_word(bits, v);
    }
  }
  __device__ __forceinline__ void add_features(unsigned dy) {
#pragma unroll 1
    for (int unit = group; unit < kUnits; unit += kGroups) {
#pragma unroll
      for (int out = 0; out < kOuts; ++out) {
        unsigned words[4];
        ptx::load_shared<0>(words, dy + Stages::RowsDy::offset(static_cast<unsigned>(word + out * kThreads),
                                                               static_cast<unsigned>(unit)));
#pragma unroll
        for (int v = 0; v < 4 * kPerWord; ++v)
          sums[out] += Config::Operand::of_word(words[v / kPerWord], v % kPerWord);
      }
    }
  }
};

/// The blocks of a run whose sums anybody needs, by bits: all, or those whose gate is not 0.
template <class Config>
__device__ __forceinline__ unsigned wanted_blocks(const BlockRun& run, const SddmmEpilogue<Config>& ends) {
  unsigned wanted = (1u << run.blocks) - 1;
  if constexpr (Config::has_gates && !Config::has_gate_gradient) {
    for (int block = 0; block < run.blocks; ++block)
      if (ends.gates[run.first + block] == 0) wanted &= ~(1u << block);
  }
  return wanted;
}

/// One CTA: worker blockIdx.x.
///
/// Config names block_out, block_in, width, chunk (batch entries in a stage), stages, threads, async_copy,
/// feature_major, alignment, in_features and out_features (0: no block is cut), the Table, the Operand and
/// the Output, and which ends there are.
template <class Config, class Tile>
__device__ __forceinline__ void grad_weight(const ActivationPairs& pairs,
                                            typename Config::Output::Element* __restrict__ dw, int n,
                                            long long x_stride, long long dy_stride, long long z_stride,
                                            const SddmmEpilogue<Config>& ends, typename Config::Table table) {
  using Stages = EntryStages<Config, Tile>;
  const int count = ptx::kept(pairs.count);
  const ActivationPairs::Pair* const shared_pairs = pairs.shared();
  __syncthreads();
  const int worker = static_cast<int>(blockIdx.x);
  const int end = table.worker(worker + 1);
#pragma unroll 1
  for (int item = table.worker(worker); item < end; ++item) {
    const BlockRun run = table.run(item);
    const unsigned wanted = wanted_blocks(run, ends);
    const bool sums_dy = Config::has_bias_gradient && run.first_of_row != 0;
    Tile tile;
    tile.clear();
    BiasSums<Config, Stages> bias;
    if constexpr (Config::has_bias_gradient) bias.clear();
    if (wanted != 0 || sums_dy) {
      Stages stages(shared_pairs, count, n, x_stride, dy_stride, z_stride, table, run, wanted);
#pragma unroll 1
      for (int chunk = stages.chunks(); chunk > 0; --chunk) {
        stages.acquire();
        tile.multiply(stages.dy(), stages.x(), wanted);
        if (Config::has_bias_gradient && sums_dy) bias.add(stages.dy());
        stages.release();
      }
      stages.drain();
    }
    if (Config::has_bias_gradient && sums_dy) bias.store(run, ends);
#pragma unroll 1
    for (int part = 0; part < Tile::kParts; ++part) {
      tile.put(part);
      __syncthreads();
    }
    store_run(run, dw, ends, table);
    if constexpr (Config::has_gate_gradient) store_gate_gradients(run, ends, table);
    __syncthreads();  // the next run's copies overwrite what slower threads still read
  }
}

}  // namespace sparsekiln
