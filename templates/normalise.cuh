#pragma once

#include "activation.cuh"
#include "cell.cuh"
#include "output.cuh"
#include "ptx.cuh"
#include "ptx_mma.cuh"

// Layer normalisation of the sums of a product: the formulas stand at Epilogue in
// include/sparsekiln/problem.h. A mean is of all features of a batch row, which several CTAs compute, so this
// is a kernel after the product, with the same grid.
//
// As few warps of a CTA, a team, share a batch row as hold it in registers; the other warps have rows of
// their own, so that enough reads are on their way at once. If all warps cannot hold a row, they read it
// several times, chunk by chunk. The order of a sum depends on the number of features and of threads alone.

namespace sparsekiln {

/// LaunchNormalisation of compiler/launch_operands.h.
struct NormalisationMatrices {
  using Matrix = CellMatrices::Matrix;
  Matrix y;   ///< dx of a gradient
  Matrix dh;  ///< float32; dx itself where that is
  Matrix sums;
  Matrix statistics;
  Matrix multiplier;
  Matrix addend;
  Matrix dmultiplier;
  Matrix daddend;
  Matrix dnorm;
  const void* gain;
  const void* bias;
  long long features;  ///< of a group
  long long parts;     ///< of dnorm
  double epsilon64;
  float epsilon;
};

enum : int { kMostRowSums = 8 };  ///< that are added up at once

/// The shared memory in which teams add up: two turns, so that one barrier is enough for a sum.
template <class Config>
__device__ __forceinline__ float* memory_of_sums() {
  if constexpr (Config::norm_sums_dynamic) {
    extern __shared__ __align__(128) unsigned char dynamic_shared_memory[];
    return reinterpret_cast<float*>(dynamic_shared_memory);
  } else {
    __shared__ float words[2 * (Config::threads / 32) * kMostRowSums];
    return words;
  }
}

/// The warps that share a row of so many features, of which a thread holds kOfThread. The teams of a CTA go
/// through their rows together: they wait at the same barriers, also a team that has no row any more.
template <class Config, int kOfThread>
struct Team {
  enum : int { kWarps = Config::threads / 32 };
  int warps;
  int count;   ///< of teams in a CTA
  int number;  ///< of this warp's team in the CTA; `count` where warps are left over, which have no rows
  int thread;  ///< in the team
  int turn = 0;

  __device__ __forceinline__ explicit Team(int features) {
    const int needed = (features + 32 * kOfThread - 1) / (32 * kOfThread);
    count = needed < kWarps ? kWarps / needed : 1;
    warps = kWarps / count;
    number = static_cast<int>(threadIdx.x) / 32 / warps;
    thread = static_cast<int>(threadIdx.x) - number * threads();
  }
  __device__ __forceinline__ int threads() const { return 32 * warps; }

  __device__ static __forceinline__ long long ctas() { return static_cast<long long>(gridDim.x) * gridDim.y; }
  /// Jobs are divided among the CTAs first: of few, no two are in one CTA.
  __device__ __forceinline__ long long first_job() const {
    return number * ctas() + static_cast<long long>(blockIdx.y) * gridDim.x + blockIdx.x;
  }
  __device__ __forceinline__ bool has_job(long long jobs) const {
    return number < count && first_job() < jobs;
  }
  /// Calls action(i, exists) for the team's share of so many jobs, in all teams of a CTA as often.
  template <class Action>
  __device__ __forceinline__ void each_job(long long jobs, Action action) const {
    const long long ahead = number * ctas();  // of the first team
    for (long long first = first_job() - ahead; first < jobs; first += count * ctas())
      action(first + ahead, number < count && first + ahead < jobs);
  }

  /// Adds each of some numbers up over the threads of the team: lanes by a butterfly, then warps in their
  /// order. All threads have the sums, with the same bits.
  template <int kCount>
  __device__ __forceinline__ void add_up(float (&sums)[kCount]) {
    static_assert(kCount <= kMostRowSums);
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[i] += __shfl_xor_sync(0xffffffff, sums[i], lanes);
    if (warps == 1) return;
    float* const of_team = memory_of_sums<Config>() + (turn * kWarps + number * warps) * kMostRowSums;
    if (thread % 32 == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) of_team[thread / 32 * kMostRowSums + i] = sums[i];
    }
    // The sums after the next ones are written to the same memory: what is read here has been read when all
    // have arrived at the barrier between.
    turn ^= 1;
    __syncthreads();
    if (number >= count) return;  // fewer warps are left over than a team has
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] = of_team[i];
    for (int warp = 1; warp < warps; ++warp)
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[i] += of_team[warp * kMostRowSums + i];
  }
};

/// A row of a matrix of the launch.
template <class Type>
__device__ __forceinline__ typename Type::Element* row_of(const NormalisationMatrices::Matrix& matrix,
                                                          long long row) {
  return static_cast<typename Type::Element*>(matrix.data) + row * matrix.stride;
}

/// Whether kRun elements can be read or written at once.
template <int kRun, class Element>
__device__ __forceinline__ bool is_aligned(const Element* address) {
  enum : int { kBytes = kRun * int{sizeof(Element)} < 16 ? kRun * int{sizeof(Element)} : 16 };
  return kRun > 1 && reinterpret_cast<unsigned long long>(address) % kBytes == 0;
}
/// Reads or writes kRun elements whose address may be a multiple of one alone: at once if it is one of all.
template <class Type, int kRun>
__device__ __forceinline__ void read_any(const typename Type::Element* from, float (&run)[kRun]) {
  if (is_aligned<kRun>(from)) {
    read_aligned<Type, 16>(from, run);
  } else {
#pragma unroll
    for (int v = 0; v < kRun; ++v) run[v] = Type::read(from + v);
  }
}
template <int kRun>
__device__ __forceinline__ void write_any(float* to, const float (&run)[kRun]) {
  if (is_aligned<kRun>(to)) {
    write_aligned<F32Output, 16>(to, run);
  } else {
#pragma unroll
    for (int v = 0; v < kRun; ++v) to[v] = run[v];
  }
}

/// What both passes have. A thread has kUnits units of kPiece consecutive features of a chunk, of each group
/// the same ones. Config names NormOutput (the type of activations), norm_features (of a group; 0: the
/// launch's), norm_piece (features that the alignment of activations lets a thread read at once, and of which
/// a group has a multiple), NormActivation, and the flags norm_lstm, norm_multiplies, norm_adds and
/// norm_activates.
template <class Config, int kMostOfThread>
struct NormalisedRows {
  using Output = typename Config::NormOutput;
  using Element = typename Output::Element;
  enum : int {
    kGroups = Config::norm_lstm ? 4 : 1,
    kMost = int{kMostOfThread} / kGroups,
    kPiece = int{Config::norm_piece} < kMost ? int{Config::norm_piece} : kMost,
    kUnits = kMost / kPiece,
    kAlignment = Config::alignment,
  };
  using RowTeam = Team<Config, kMost>;
  using Values = float[kUnits][kPiece];
  using GroupValues = float[kGroups][kUnits][kPiece];

  NormalisationMatrices operands;
  CellMatrices cell;
  int features;
  RowTeam team;
  int chunks;          ///< of a row; 1: it is read once
  bool exists = true;  ///< the row, and what else has its features

  __device__ __forceinline__ NormalisedRows(const NormalisationMatrices& given, const CellMatrices& of_cell)
      : operands(given),
        cell(of_cell),
        features(Config::norm_features != 0 ? int{Config::norm_features} : static_cast<int>(given.features)),
        team(features) {
    // Read at once, so that the compiler needs no address of the parameter in a register.
    operands.y.data = ptx::kept(operands.y.data);
    operands.sums.data = ptx::kept(operands.sums.data);
    operands.statistics.data = ptx::kept(operands.statistics.data);
    const int of_chunk = team.threads() * kMost;
    chunks = (features + of_chunk - 1) / of_chunk;
  }

  __device__ __forceinline__ int feature(int chunk, int unit) const {
    return ((chunk * kUnits + unit) * team.threads() + team.thread) * kPiece;
  }
  __device__ __forceinline__ bool has(int chunk, int unit) const {
    return exists && feature(chunk, unit) < features;
  }

  /// Reads a chunk of one group of a row; what it lacks becomes zeros.
  __device__ __forceinline__ void read(const Element* row, int chunk, Values& values) const {
    read_as<Output>(row, chunk, values);
  }
  __device__ __forceinline__ void read_state(const float* row, int chunk, Values& values) const {
    read_as<F32Output>(row, chunk, values);
  }
  template <class Type>
  __device__ __forceinline__ void read_as(const typename Type::Element* row, int chunk,
                                          Values& values) const {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
      for (int v = 0; v < kPiece; ++v) values[unit][v] = 0;
      if (has(chunk, unit)) read_aligned<Type, kAlignment>(row + feature(chunk, unit), values[unit]);
    }
  }
  __device__ __forceinline__ void read_groups(const Element* row, int chunk, GroupValues& values) const {
    read_groups_as<Output>(row, chunk, values);
  }
  template <class Type>
  __device__ __forceinline__ void read_groups_as(const typename Type::Element* row, int chunk,
                                                 GroupValues& values) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
      read_as<Type>(row + static_cast<long long>(group) * features, chunk, values[group]);
  }
  /// Reads a chunk of gain or bias, of all groups.
  __device__ __forceinline__ void read_vector(const void* vector, int chunk, GroupValues& values) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit)
        if (has(chunk, unit))
          read_any<Output>(static_cast<const Element*>(vector) + static_cast<long long>(group) * features +
                               feature(chunk, unit),
                           values[group][unit]);
  }

  /// act's argument, v·multiplier + addend.
  __device__ static __forceinline__ float argument(float v, float multiplier, float addend) {
    if constexpr (Config::norm_multiplies && Config::norm_adds) return __fmaf_rn(v, multiplier, addend);
    if constexpr (Config::norm_multiplies) return v * multiplier;
    if constexpr (Config::norm_adds) return v + addend;
    return v;
  }
};

/// Normalises the sums of all batch rows.
template <class Config>
struct SumsNormaliser : NormalisedRows<Config, 16> {
  using Rows = NormalisedRows<Config, 16>;
  using Rows::argument;
  using Rows::cell;
  using Rows::chunks;
  using Rows::exists;
  using Rows::feature;
  using Rows::features;
  using Rows::has;
  using Rows::kAlignment;
  using Rows::kGroups;
  using Rows::kPiece;
  using Rows::kUnits;
  using Rows::operands;
  using Rows::read;
  using Rows::read_groups;
  using Rows::read_state;
  using Rows::read_vector;
  using Rows::team;
  using typename Rows::Element;
  using typename Rows::GroupValues;
  using typename Rows::Output;
  using typename Rows::Values;

  /// Gain and bias of the thread's features: of all its rows if they have one chunk, else of the one at hand.
  GroupValues gain;
  GroupValues bias;

  __device__ __forceinline__ SumsNormaliser(const NormalisationMatrices& given, const CellMatrices& of_cell,
                                            int n)
      : Rows(given, of_cell) {
    exists = team.has_job(n);
    if (chunks == 1) read_parameters(0);
    team.each_job(n, [&](long long row, bool exists_here) {
      exists = exists_here;
      normalise(row);
    });
  }

 private:
  /// What a chunk of a row has besides its sums.
  struct Others {
    Values multiplier;
    Values addend;
    Values c_before;
  };

  __device__ __forceinline__ void read_parameters(int chunk) {
    read_vector(operands.gain, chunk, gain);
    read_vector(operands.bias, chunk, bias);
  }
  __device__ __forceinline__ void read_others(long long row, int chunk, Others& others) const {
    if constexpr (Config::norm_multiplies)
      read(row_of<Output>(operands.multiplier, row), chunk, others.multiplier);
    if constexpr (Config::norm_adds) read(row_of<Output>(operands.addend, row), chunk, others.addend);
    if constexpr (Config::norm_lstm)
      read_state(row_of<F32Output>(cell.c_before, row), chunk, others.c_before);
  }

  __device__ __forceinline__ void normalise(long long row) {
    const Element* const sums = row_of<Output>(operands.sums, row);
    const float count = static_cast<float>(features);
    GroupValues z;
    Others others;
    // A row of one chunk is read once, and all that belongs to it at the same time.
    if (chunks == 1) {
      read_groups(sums, 0, z);
      read_others(row, 0, others);
    }
    float mean[kGroups] = {};
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (chunks > 1) read_groups(sums, chunk, z);
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
          for (int v = 0; v < kPiece; ++v) mean[group] += z[group][unit][v];
    }
    team.add_up(mean);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) mean[group] = __fdiv_rn(mean[group], count);
    float inverse[kGroups] = {};
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (chunks > 1) read_groups(sums, chunk, z);
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
          for (int v = 0; v < kPiece; ++v) {
            const float difference = z[group][unit][v] - mean[group];
            if (has(chunk, unit)) inverse[group] = __fmaf_rn(difference, difference, inverse[group]);
          }
    }
    team.add_up(inverse);
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
      inverse[group] = __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(inverse[group], count) + operands.epsilon));
    write_statistics(row_of<F32Output>(operands.statistics, row), mean, inverse);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (chunks > 1) {
        read_groups(sums, chunk, z);
        read_others(row, chunk, others);
        read_parameters(chunk);
      }
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        if (!has(chunk, unit)) continue;
        finish(row, chunk, unit, z, others, mean, inverse);
      }
    }
  }

  /// A number by each of the first threads.
  __device__ __forceinline__ void write_statistics(float* statistics, const float (&mean)[kGroups],
                                                   const float (&inverse)[kGroups]) const {
    float number[1] = {};
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (team.thread == 2 * group) number[0] = mean[group];
      if (team.thread == 2 * group + 1) number[0] = inverse[group];
    }
    if (exists && team.thread < 2 * kGroups) ptx::store_global(statistics + team.thread, number);
  }

  /// Makes y, and c where there are cells, of a unit.
  __device__ __forceinline__ void finish(long long row, int chunk, int unit, const GroupValues& z,
                                         const Others& others, const float (&mean)[kGroups],
                                         const float (&inverse)[kGroups]) const {
    const int first = feature(chunk, unit);
    const auto affine = [&](int group, int v) {
      return __fmaf_rn((z[group][unit][v] - mean[group]) * inverse[group], gain[group][unit][v],
                       bias[group][unit][v]);
    };
    float y[kPiece];
    if constexpr (Config::norm_lstm) {
      float c[kPiece];
#pragma unroll
      for (int v = 0; v < kPiece; ++v) {
        float gates[4];
#pragma unroll
        for (int gate = 0; gate < 4; ++gate) gates[gate] = activate_gate(gate, affine(gate, v));
        if constexpr (Config::norm_multiplies) gates[2] *= others.multiplier[unit][v];
        const CellState state =
            state_of_cell({gates[0], gates[1], gates[2], gates[3]}, others.c_before[unit][v]);
        c[v] = state.c;
        y[v] = state.h;
      }
      write_aligned<F32Output, kAlignment>(row_of<F32Output>(cell.c, row) + first, c);
    } else {
#pragma unroll
      for (int v = 0; v < kPiece; ++v)
        y[v] = Config::NormActivation::apply(
            argument(affine(0, v), others.multiplier[unit][v], others.addend[unit][v]));
    }
    write_aligned<Output, kAlignment>(row_of<Output>(operands.y, row) + first, y);
  }
};

/// Features of all groups that a thread holds for a gradient: fewer where more would spill registers.
template <class Config>
__device__ constexpr int most_of_gradient() {
  return Config::norm_lstm && Config::threads <= 256 ? 16 : 8;
}

/// Makes dx of dh, and the gradients of all else. A team has a part of dnorm, and the rows of it in ascending
/// order: it keeps what it adds in registers if a row has one chunk.
template <class Config>
struct SumsGradient : NormalisedRows<Config, most_of_gradient<Config>()> {
  using Rows = NormalisedRows<Config, most_of_gradient<Config>()>;
  using Rows::argument;
  using Rows::cell;
  using Rows::chunks;
  using Rows::exists;
  using Rows::feature;
  using Rows::features;
  using Rows::has;
  using Rows::kAlignment;
  using Rows::kGroups;
  using Rows::kPiece;
  using Rows::kUnits;
  using Rows::operands;
  using Rows::read;
  using Rows::read_groups;
  using Rows::read_state;
  using Rows::read_vector;
  using Rows::team;
  using typename Rows::Element;
  using typename Rows::GroupValues;
  using typename Rows::Output;
  using typename Rows::Values;
  enum : bool {
    kNeedsV = Config::norm_lstm || Config::norm_multiplies || Config::norm_activates,
  };

  /// What dnorm has of the thread's features: of a part, or of the chunk at hand.
  GroupValues dgain;
  GroupValues dbias;

  __device__ __forceinline__ SumsGradient(const NormalisationMatrices& given, const CellMatrices& of_cell,
                                          int n)
      : Rows(given, of_cell) {
    operands.dh.data = ptx::kept(operands.dh.data);
    const long long parts = operands.parts < n ? operands.parts : n;  // that have rows
    const long long rows = (n + parts - 1) / parts;                   // of a part at most
    team.each_job(parts, [&](long long part, bool exists_here) {
      float* const dnorm = row_of<F32Output>(operands.dnorm, part);
      exists = exists_here;
      if (chunks == 1) read_dnorm(dnorm, 0);
      for (long long i = 0; i < rows; ++i) {
        const long long row = part + i * parts;
        exists = exists_here && row < n;
        differentiate(row, dnorm);
      }
      exists = exists_here;
      if (chunks == 1) write_dnorm(dnorm, 0);
    });
  }

 private:
  /// What a chunk of a row has besides its sums and dh.
  struct Others {
    Values multiplier;
    Values addend;
    Values c_before;
    Values c;
    Values dc;
  };

  /// The place of a unit in dnorm, of the gradient of the gain; that of the bias is kGroups groups further.
  __device__ __forceinline__ float* place(float* dnorm, int group, int chunk, int unit) const {
    return dnorm + static_cast<long long>(group) * features + feature(chunk, unit);
  }
  template <class Action>
  __device__ __forceinline__ void each_unit_of_dnorm(float* dnorm, int chunk, Action action) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        if (!has(chunk, unit)) continue;
        action(place(dnorm, group, chunk, unit), dgain[group][unit]);
        action(place(dnorm, kGroups + group, chunk, unit), dbias[group][unit]);
      }
  }
  __device__ __forceinline__ void read_dnorm(float* dnorm, int chunk) {
    each_unit_of_dnorm(dnorm, chunk,
                       [](const float* from, float(&run)[kPiece]) { read_any<F32Output>(from, run); });
  }
  __device__ __forceinline__ void write_dnorm(float* dnorm, int chunk) {
    each_unit_of_dnorm(dnorm, chunk, [](float* to, const float(&run)[kPiece]) { write_any(to, run); });
  }

  __device__ __forceinline__ void read_others(long long row, int chunk, Others& others) const {
    const auto state = [&](const CellMatrices::Matrix& matrix, Values& values) {
      read_state(row_of<F32Output>(matrix, row), chunk, values);
    };
    if constexpr (Config::norm_multiplies)
      read(row_of<Output>(operands.multiplier, row), chunk, others.multiplier);
    if constexpr (Config::norm_adds && Config::norm_activates)
      read(row_of<Output>(operands.addend, row), chunk, others.addend);
    if constexpr (Config::norm_lstm) {
      state(cell.c_before, others.c_before);
      state(cell.c, others.c);
      state(cell.dc, others.dc);
    }
  }

  __device__ static __forceinline__ float number_at(const float* address) {
    float number[1];
    ptx::load_global(address, number);
    return number[0];
  }

  /// All gradients of a row. `dnorm`: its part's.
  __device__ __forceinline__ void differentiate(long long row, float* dnorm) {
    const Element* const sums = row_of<Output>(operands.sums, row);
    float* const dh = row_of<F32Output>(operands.dh, row);  // and e, while it is in no registers
    const float* const statistics = row_of<F32Output>(operands.statistics, row);
    float mean[kGroups];
    float inverse[kGroups];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      mean[group] = exists ? number_at(statistics + 2 * group) : 0.0f;
      inverse[group] = exists ? number_at(statistics + 2 * group + 1) : 0.0f;
    }
    GroupValues z;  // later u, which is z normalised
    GroupValues e;
    float means[2 * kGroups] = {};  // of e, and of e·u
    for (int chunk = 0; chunk < chunks; ++chunk) {
      GroupValues gain;
      GroupValues bias;
      Others others;
      read_groups(sums, chunk, z);
      read_state(dh, chunk, e[0]);
      read_others(row, chunk, others);
      read_vector(operands.gain, chunk, gain);
      if constexpr (kNeedsV) read_vector(operands.bias, chunk, bias);
      if (chunks > 1) read_dnorm(dnorm, chunk);
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        if (!has(chunk, unit)) continue;
#pragma unroll
        for (int group = 0; group < kGroups; ++group)
#pragma unroll
          for (int v = 0; v < kPiece; ++v)
            z[group][unit][v] = (z[group][unit][v] - mean[group]) * inverse[group];
        differentiate_ends(row, chunk, unit, z, gain, bias, others, e);
#pragma unroll
        for (int group = 0; group < kGroups; ++group)
#pragma unroll
          for (int v = 0; v < kPiece; ++v) {
            const float dv = e[group][unit][v];
            const float u = z[group][unit][v];
            dgain[group][unit][v] += dv * u;
            dbias[group][unit][v] += dv;
            const float of_u = dv * gain[group][unit][v];
            e[group][unit][v] = of_u;
            means[2 * group] += of_u;
            means[2 * group + 1] = __fmaf_rn(of_u, u, means[2 * group + 1]);
          }
      }
      if (chunks > 1) {
        write_groups<F32Output>(dh, chunk, e);
        write_dnorm(dnorm, chunk);
      }
    }
    team.add_up(means);
#pragma unroll
    for (int i = 0; i < 2 * kGroups; ++i) means[i] = __fdiv_rn(means[i], static_cast<float>(features));
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (chunks > 1) {
        read_groups(sums, chunk, z);
        Rows::template read_groups_as<F32Output>(dh, chunk, e);
      }
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
          for (int v = 0; v < kPiece; ++v) {
            float u = z[group][unit][v];
            if (chunks > 1) u = (u - mean[group]) * inverse[group];
            e[group][unit][v] =
                __fmaf_rn(-u, means[2 * group + 1], e[group][unit][v] - means[2 * group]) * inverse[group];
          }
      write_groups<Output>(row_of<Output>(operands.y, row), chunk, e);
    }
  }

  template <class Type>
  __device__ __forceinline__ void write_groups(typename Type::Element* row, int chunk,
                                               const GroupValues& values) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit)
        if (has(chunk, unit))
          write_aligned<Type, kAlignment>(
              row + static_cast<long long>(group) * features + feature(chunk, unit), values[group][unit]);
  }

  /// Makes the gradients of v, in `d`, from dh, which is in that of the first group, and writes those of what
  /// the activation or the cell takes besides.
  __device__ __forceinline__ void differentiate_ends(long long row, int chunk, int unit, const GroupValues& u,
                                                     const GroupValues& gain, const GroupValues& bias,
                                                     const Others& others, GroupValues& d) const {
    const int first = feature(chunk, unit);
    const auto affine = [&](int group, int v) {
      return __fmaf_rn(u[group][unit][v], gain[group][unit][v], bias[group][unit][v]);
    };
    if constexpr (Config::norm_lstm) {
      float dc_before[kPiece];
#pragma unroll
      for (int v = 0; v < kPiece; ++v) {
        float gates[4];
#pragma unroll
        for (int gate = 0; gate < 4; ++gate) gates[gate] = activate_gate(gate, affine(gate, v));
        const CellGradients gradients =
            gradients_of_cell({gates[0], gates[1], gates[2], gates[3]}, d[0][unit][v],
                              {others.c_before[unit][v], others.c[unit][v], others.dc[unit][v]},
                              Config::norm_multiplies ? others.multiplier[unit][v] : 1.0f);
#pragma unroll
        for (int gate = 0; gate < 4; ++gate) d[gate][unit][v] = gradients.dz[gate];
        dc_before[v] = gradients.dc_before;
      }
      write_aligned<F32Output, kAlignment>(row_of<F32Output>(cell.dc_before, row) + first, dc_before);
    } else {
      float daddend[kPiece];
      float dmultiplier[kPiece];
#pragma unroll
      for (int v = 0; v < kPiece; ++v) {
        const float normalised = kNeedsV ? affine(0, v) : 0.0f;
        float& dv = d[0][unit][v];
        if constexpr (Config::norm_activates)
          dv *= Config::NormActivation::derivative(
              argument(normalised, others.multiplier[unit][v], others.addend[unit][v]));
        daddend[v] = dv;
        dmultiplier[v] = dv * normalised;
        if constexpr (Config::norm_multiplies) dv *= others.multiplier[unit][v];
      }
      if constexpr (Config::norm_adds)
        write_aligned<Output, kAlignment>(row_of<Output>(operands.daddend, row) + first, daddend);
      if constexpr (Config::norm_multiplies)
        write_aligned<Output, kAlignment>(row_of<Output>(operands.dmultiplier, row) + first, dmultiplier);
    }
  }
};

/// The kernels after a product, forward and the gradient.
template <class Config>
__device__ __forceinline__ void normalise(const NormalisationMatrices& operands, const CellMatrices& cell,
                                          int n) {
  SumsNormaliser<Config>(operands, cell, n);
}
template <class Config>
__device__ __forceinline__ void differentiate_normalisation(const NormalisationMatrices& operands,
                                                            const CellMatrices& cell, int n) {
  SumsGradient<Config>(operands, cell, n);
}

}  // namespace sparsekiln
