#pragma once

#include "activation.cuh"
#include "cell.cuh"
#include "extents.cuh"
#include "lattice.cuh"
#include "output.cuh"
#include "ptx.cuh"
#include "requirements.cuh"
#include "schedule.cuh"

// Epilogues: what is done with the accumulators of an item.
//
// A Tile is a FinishedTile (requirements.cuh). kRun values that start at a multiple of kRun are consecutive
// outputs of one block row; n_of(j) of threads without values is beyond every batch.

namespace sparsekiln {

/// The arguments of the epilogue and of what changes the operands: everything that a kernel reads except x
/// and W. The formulas stand at Epilogue and Computation in include/sparsekiln/problem.h. Members that Config
/// does not use are not read.
template <class Config>
struct EpilogueArguments {
  using Element = typename Config::Output::Element;
  float alpha = 1;
  float beta = 0;
  const Element* bias = nullptr;
  const typename Config::Element* v = nullptr;  ///< the second weight; others are as far apart
  const Element* v_bias = nullptr;
  const typename Config::Residual::Element* residual = nullptr;  ///< the first batch row of the batch tile
  long long residual_stride = 0;
  const float* block_scales = nullptr;
  const typename Config::Element* z = nullptr;
  long long z_stride = 0;
  const float* edge_gain = nullptr;
  const float* edge_bias = nullptr;
  const float* row_scale = nullptr;
  const float* v_row_scale = nullptr;
  ImageExtents images{};
  CellMatrices cell{};
};

/// Where the outputs of one batch tile are written.
template <class Config>
struct Destination {
  /// The first batch row of the tile; all of y where rows are scattered.
  typename Config::Output::Element* y;
  long long y_stride;
  int first;  ///< the number of the tile's first row
  int valid;  ///< rows from there on that exist
  void* workspace;
  int batch_tile;
  Images<Config> images;
  EpilogueArguments<Config> epilogue;
};

/// Whether the rows of a tile are not neighbours in y.
template <class Config>
__device__ constexpr bool scatters() {
  if constexpr (Config::convolves)
    return Lattice<Config>::kScatters;
  else
    return false;
}

/// Where the rows of a tile are in y, as a thread writes them for one block row of B.
template <class Config, class Tile>
struct RowsOfY {
  int row[scatters<Config>() ? int{Tile::kN} : 1];

  __device__ __forceinline__ RowsOfY(const Tile& tile, const Destination<Config>& to, int row_of_b) {
    if constexpr (scatters<Config>()) {
      enum : int { kClasses = Lattice<Config>::kClasses };
#pragma unroll
      for (int j = 0; j < Tile::kN; ++j)
        row[j] = tile.n_of(j) < to.valid
                     ? Lattice<Config>::row_of_y(to.first + tile.n_of(j), row_of_b % kClasses, to.images)
                     : -1;
    }
  }
  /// Whether y has the thread's j-th row.
  __device__ __forceinline__ bool has(const Tile& tile, const Destination<Config>& to, int j) const {
    if constexpr (scatters<Config>())
      return row[j] >= 0;
    else
      return tile.n_of(j) < to.valid;
  }
  /// That row, from Destination::y on.
  __device__ __forceinline__ int of(const Tile& tile, int j) const {
    if constexpr (scatters<Config>())
      return row[j];
    else
      return tile.n_of(j);
  }
  /// The number of the row that Destination::y begins with.
  __device__ static __forceinline__ int first(const Destination<Config>& to) {
    return scatters<Config>() ? 0 : to.first;
  }
};

/// The block row of y's features that a row of B belongs to.
template <class Config>
__device__ __forceinline__ int block_row_of(int row_of_b) {
  if constexpr (scatters<Config>())
    return row_of_b / Lattice<Config>::kClasses;
  else
    return row_of_b;
}

/// The edge situations of the rows of y that a thread writes.
template <class Config, class Tile>
struct EdgesOfY {
  int situation[Config::has_edge_bias ? int{Tile::kN} : 1];
  int features;  ///< of y

  __device__ __forceinline__ EdgesOfY(const Tile& tile, const Destination<Config>& to,
                                      const RowsOfY<Config, Tile>& rows,
                                      const typename Config::Table& table) {
    if constexpr (Config::has_edge_bias) {
      features = table.features();
#pragma unroll
      for (int j = 0; j < Tile::kN; ++j)
        situation[j] = rows.has(tile, to, j)
                           ? edge_situation<typename Config::Edges>(rows.first(to) + rows.of(tile, j))
                           : 0;
    }
  }
  /// sum · edge_gain + edge_bias.
  __device__ __forceinline__ float apply(float sum, int j, long long feature,
                                         const EpilogueArguments<Config>& epilogue) const {
    if constexpr (Config::has_edge_bias) {
      const long long at = static_cast<long long>(situation[j]) * features + feature;
      return __fmaf_rn(sum, epilogue.edge_gain[at], epilogue.edge_bias[at]);
    }
    return sum;
  }
};

/// What sums of W, and of V, are multiplied by in a block row.
template <class Config>
struct Factors {
  float of[Config::weights];

  __device__ __forceinline__ Factors(int block_row, const EpilogueArguments<Config>& epilogue) {
#pragma unroll
    for (int weight = 0; weight < Config::weights; ++weight) {
      of[weight] = epilogue.alpha;
      if constexpr (Config::has_row_scale) {
        const float scale = (weight == 0 ? epilogue.row_scale : epilogue.v_row_scale)[block_row];
        of[weight] = Config::scales ? epilogue.alpha * scale : scale;
      }
    }
  }
};

/// factor · sum + bias, for W or V.
template <class Config>
__device__ __forceinline__ float scaled(float sum, float bias, float factor) {
  enum : bool { kScales = Config::scales || Config::has_row_scale };
  if constexpr (kScales && Config::has_bias) return __fmaf_rn(factor, sum, bias);
  if constexpr (kScales) return factor * sum;
  if constexpr (Config::has_bias) return sum + bias;
  return sum;
}

/// A sum, of whatever type, as a word of 32 bits that is stored as a float.
__device__ __forceinline__ float word_of(float sum) { return sum; }
__device__ __forceinline__ float word_of(int sum) { return __int_as_float(sum); }
/// And back.
__device__ __forceinline__ void take_word(float& sum, float word) { sum = word; }
__device__ __forceinline__ void take_word(int& sum, float word) { sum = __float_as_int(word); }
__device__ __forceinline__ void add_word(float& sum, float word) { sum += word; }
__device__ __forceinline__ void add_word(int& sum, float word) {
  sum = static_cast<int>(static_cast<unsigned>(sum) + __float_as_uint(word));  // wraps around
}

/// Adds the residual and beta · y to consecutive outputs of one batch row, the first of which is written to
/// `y`.
template <class Config, int kRun>
__device__ __forceinline__ void add_residual_and_y(float (&run)[kRun], long long at_residual,
                                                   const typename Config::Output::Element* y,
                                                   const EpilogueArguments<Config>& epilogue) {
  using Output = typename Config::Output;
  if constexpr (Config::has_residual) {
    float residual[kRun];
    Config::Residual::read(epilogue.residual + at_residual, residual);
#pragma unroll
    for (int v = 0; v < kRun; ++v) run[v] += residual[v];
  }
  if constexpr (Config::scales) {
    if (epilogue.beta != 0) {
      float before[kRun];
      Output::read(y, before);
#pragma unroll
      for (int v = 0; v < kRun; ++v) run[v] = __fmaf_rn(epilogue.beta, before[v], run[v]);
    }
  }
}

/// Finishes and writes consecutive outputs of one batch row. A store writes kPiece values, as many as the
/// alignment of activations allows. Where only the first `left` outputs exist, values are written one by one.
template <class Config, int kRun>
__device__ __forceinline__ void write(const float (&run)[kRun], long long at_residual,
                                      typename Config::Output::Element* y, long long left,
                                      const EpilogueArguments<Config>& epilogue) {
  using Output = typename Config::Output;
  enum : int { kPiece = aligned_piece<Output, Config::alignment, kRun>() };
#pragma unroll
  for (int first = 0; first < kRun; first += kPiece) {
    if (Config::out_features == 0 || first + kPiece <= left) {
      float piece[kPiece];
#pragma unroll
      for (int v = 0; v < kPiece; ++v) piece[v] = run[first + v];
      add_residual_and_y<Config>(piece, at_residual + first, y + first, epilogue);
      Output::template write<Config::past_l2>(y + first, piece);
    } else {
#pragma unroll
      for (int v = first; v < first + kPiece; ++v) {
        if (v >= left) continue;
        float one[1] = {run[v]};
        add_residual_and_y<Config>(one, at_residual + v, y + v, epilogue);
        Output::write(y + v, one);
      }
    }
  }
}

/// The cells of an LSTM of kRun outputs of a block row and the thread's j-th batch row: of tile `r`, and
/// where a cell has four sums of the three after it.
template <class Config, int kRun, class Tile>
__device__ __forceinline__ void store_cells(const Tile& tile, int r, int j, int i, int n, long long feature,
                                            const Destination<Config>& to) {
  // An optimization barrier. Without it, where the rows of all matrices begin is computed once for all runs,
  // and held in more registers than there are.
  asm volatile("" : "+r"(n));
  const Cells<Config, kRun> cells{to.epilogue.cell, n, feature};
  if constexpr (Config::weights > 1) {
    float z[4][kRun];
#pragma unroll
    for (int gate = 0; gate < 4; ++gate)
#pragma unroll
      for (int v = 0; v < kRun; ++v) z[gate][v] = tile.at(r + gate, j, i + v);
    cells.forward(z, to.y, to.y_stride);
  } else {
    float dh[kRun];
#pragma unroll
    for (int v = 0; v < kRun; ++v) dh[v] = tile.at(r, j, i + v);
    if constexpr (Config::has_residual) {
      float residual[kRun];
      cells.template read<typename Config::Residual>(
          to.epilogue.residual + cells.place(feature, to.epilogue.residual_stride), residual);
#pragma unroll
      for (int v = 0; v < kRun; ++v) dh[v] += residual[v];
    }
    cells.backward(dh, to.y, to.y_stride);
  }
}

/// The block rows that an item's sums are of, and its part of a split row. Each call reads the table.
template <class Config>
struct ItemPlace {
  const typename Config::Table* table;

  __device__ __forceinline__ ItemPlace(const typename Config::Table& from, int) : table(&from) {}
  __device__ __forceinline__ int row(int place) const { return table->row(place); }
  __device__ __forceinline__ int split(int item) const { return table->split(item); }
};

/// ItemPlace of an item with one block row. The constructor reads the table, so that the loads are under way
/// while the warps add their sums.
template <class Config>
struct KnownItemPlace {
  int only_row;
  int only_split;

  __device__ __forceinline__ KnownItemPlace(const typename Config::Table& table, int item)
      : only_row(table.row(item)) {
    static_assert(Config::rows == Config::weights && Config::merge == 1, "an item is of one block row");
    if constexpr (Config::splits) only_split = table.split(item);
  }
  __device__ __forceinline__ int row(int) const { return only_row; }
  __device__ __forceinline__ int split(int) const { return only_split; }
};

/// Applies the epilogue and writes y[n, out], or y[out, n], for the batch rows, block rows and features that
/// exist.
template <class Config, PlaceOfItem Place, FinishedTile Tile>
__device__ __forceinline__ void store(const typename Config::Table& table, int item, const Place& where,
                                      const Tile& tile, const Destination<Config>& to) {
  enum : int {
    kRun = Config::feature_major ? 1 : int{Tile::kRun},  ///< consecutive outputs in memory
    kTiles = int{Tile::kRows} / Config::weights,
  };
  const auto place_of = [](int n, long long feature, long long stride) {
    return Config::feature_major ? feature * stride + n : n * stride + feature;
  };
#pragma unroll
  for (int r = 0; r < kTiles; ++r) {
    const int place = (item * kTiles + r) * Config::merge;
    // The row of B of all that a thread has of the tile; where block rows are merged, of its first outputs.
    const int first_row = where.row(place + (Config::merge == 1 ? 0 : tile.out_of(0) / Config::block_out));
    static_assert(Config::merge == 1 || !scatters<Config>() || int{Tile::kOut} == kRun,
                  "the rows of y that a thread writes are those of one class");
    if ((Config::merge == 1 ? Config::pads_tiles : scatters<Config>()) && first_row < 0) continue;
    const RowsOfY<Config, Tile> rows(tile, to, first_row);
    const EdgesOfY<Config, Tile> edges(tile, to, rows, table);
#pragma unroll
    for (int i = 0; i < Tile::kOut; i += kRun) {
      const int out = tile.out_of(i);
      const int row_of_b = Config::merge == 1 ? first_row : where.row(place + out / Config::block_out);
      if (Config::merge > 1 && row_of_b < 0) continue;
      const int row = block_row_of<Config>(row_of_b);
      const long long feature = static_cast<long long>(row) * Config::block_out +
                                (Config::merge == 1 ? out : out % Config::block_out);
      const long long left = Config::out_features - feature;  // in a partial last block row
      if (Config::out_features != 0 && left <= 0) continue;
      const Factors<Config> factors(row, to.epilogue);
      float bias[Config::weights][kRun] = {};
      if constexpr (Config::has_bias) {
#pragma unroll
        for (int v = 0; v < kRun; ++v) {
          if (Config::out_features != 0 && v >= left) continue;
          bias[0][v] = Config::Output::read(to.epilogue.bias + feature + v);
          if constexpr (Config::weights > 1)
            bias[1][v] = Config::Output::read(to.epilogue.v_bias + feature + v);
        }
      }
#pragma unroll
      for (int j = 0; j < Tile::kN; ++j) {
        if (!rows.has(tile, to, j)) continue;
        const int n = rows.of(tile, j);
        if constexpr (Config::lstm) {
          store_cells<Config, kRun>(tile, r * Config::weights, j, i, n, feature, to);
        } else {
          float run[kRun];
#pragma unroll
          for (int v = 0; v < kRun; ++v) {
            const auto sum = tile.at(r * Config::weights, j, i + v);
            if constexpr (Config::Output::kSums) {
              run[v] = word_of(sum);
            } else {
              float z = scaled<Config>(sum, bias[0][v], factors.of[0]);
              if (Config::has_edge_bias && (Config::out_features == 0 || v < left))
                z = edges.apply(z, j, feature + v, to.epilogue);
              run[v] = Config::Activation::apply(z);
              if constexpr (Config::weights > 1)
                run[v] *=
                    scaled<Config>(tile.at(r * Config::weights + 1, j, i + v), bias[1][v], factors.of[1]);
            }
          }
          write<Config>(run, place_of(n, feature, to.epilogue.residual_stride),
                        to.y + place_of(n, feature, to.y_stride), left, to.epilogue);
        }
      }
    }
  }
}

/// The threads that combine the parts of an item: those of a CTA. A family that has others for it says so of
/// its Tile.
template <class Tile>
struct Combiners {
  __device__ static __forceinline__ void sync() { __syncthreads(); }
};

/// Writes the accumulators of one part of a split item to the workspace. Returns true in the CTA that arrives
/// last: its tile then holds part 0 + part 1 + … in this order, whatever the order of arrival, and the item's
/// counter is zero again. No CTA waits for another.
template <int kThreads, FinishedTile Tile>
__device__ __forceinline__ bool combine(Tile& tile, const SplitPart& split, unsigned* counters,
                                        float* partials) {
  enum : int {
    kOfTile = Tile::kN * Tile::kOut,
    kValues = Tile::kRows * kOfTile,
    kHolders = Tile::kHolders,
    kPiece = kValues % 4 == 0   ? 4
             : kValues % 2 == 0 ? 2
                                : 1,  ///< values that are written at once
  };
  const auto value = [&](int v) -> auto& {
    return tile.at(v / kOfTile, v % kOfTile / Tile::kOut, v % Tile::kOut);
  };
  __shared__ bool last;
  const int thread = static_cast<int>(threadIdx.x);
  const bool holds = int{kHolders} == kThreads || thread < kHolders;
  const auto sums_of = [&](int slot) {
    return partials + static_cast<long long>(slot) * (kValues * kHolders) + thread * kPiece;
  };
  if (holds) {
    float* const own = sums_of(split.slot);
#pragma unroll
    for (int first = 0; first < kValues; first += kPiece) {
      float piece[kPiece];
#pragma unroll
      for (int v = 0; v < kPiece; ++v) piece[v] = word_of(value(first + v));
      ptx::store_global(own + first * kHolders, piece);
    }
  }
  Combiners<Tile>::sync();
  // The barrier orders the partial sums of all threads before the atomic, which publishes them, and in the
  // last CTA it orders those of the others before what follows the next barrier.
  if (thread == 0)
    last = ptx::add_acquire_release(counters + split.counter, 1) + 1 == static_cast<unsigned>(split.parts);
  Combiners<Tile>::sync();
  if (!last) return false;
  if (thread == 0) counters[split.counter] = 0;
  if (!holds) return true;

  const float* part = sums_of(split.first);
  float piece[kPiece];
#pragma unroll
  for (int first = 0; first < kValues; first += kPiece) {
    ptx::load_relaxed(part + first * kHolders, piece);
#pragma unroll
    for (int v = 0; v < kPiece; ++v) take_word(value(first + v), piece[v]);
  }
  for (int p = 1; p < split.parts; ++p) {
    part += kValues * kHolders;
#pragma unroll
    for (int first = 0; first < kValues; first += kPiece) {
      ptx::load_relaxed(part + first * kHolders, piece);
#pragma unroll
      for (int v = 0; v < kPiece; ++v) add_word(value(first + v), piece[v]);
    }
  }
  return true;
}

/// Finishes an item: its accumulators are written to y, or, for a part of a split item, to the workspace
/// first.
template <class Config, PlaceOfItem Place, FinishedTile Tile>
__device__ __forceinline__ void finish(const typename Config::Table& table, int item, const Place& where,
                                       Tile& tile, const Destination<Config>& to) {
  if constexpr (Config::splits) {
    if (const int split = where.split(item); split >= 0) {
      auto* const counters =
          static_cast<unsigned*>(to.workspace) + static_cast<long long>(to.batch_tile) * table.counters();
      char* const partials =
          static_cast<char*>(to.workspace) + table.counter_bytes() + to.batch_tile * table.tile_bytes();
      if (!combine<Config::threads>(tile, table.part(split), counters, reinterpret_cast<float*>(partials)))
        return;
    }
  }
  store(table, item, where, tile, to);
}

}  // namespace sparsekiln
