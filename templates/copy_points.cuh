#pragma once

#include "lattice.cuh"
#include "load_batch_rows.cuh"

// The x of a convolution, for the gradient of its weight: a row of shared memory is a point, which each block
// of a run reads where its tap says.

namespace sparsekiln {

/// As ActivationCopy of batch-major operands (load_batch_rows.cuh).
template <class Config, int kBlocks, template <int> class RowsOf>
struct PointsCopy : ActivationCopy<Config, Config::block_in, kBlocks, Config::in_features, RowsOf, false> {
  using Base = ActivationCopy<Config, Config::block_in, kBlocks, Config::in_features, RowsOf, false>;
  using Points = Lattice<Config>;

  struct Features {
    int first;  ///< the block's first feature
    int bytes;  ///< bytes of the thread's unit that exist
    typename Points::Shift shift;
    Images<Config> images;
    template <class Column>
    __device__ __forceinline__ Features(Column column, const Images<Config>& launched) : images(launched) {
      const int found = column(Base::unit() / Base::kBlockUnits);
      first = found < 0 ? 0 : found / Points::kTaps * Config::block_in;
      bytes = found < 0 ? 0 : Base::existing_bytes(first);
      shift = Points::shift(found < 0 ? 0 : found);
    }
  };

  /// Points are found by their numbers: addresses do not move on with them.
  __device__ static __forceinline__ long long first(const Features& features, long long) {
    return static_cast<long long>(features.first) * Base::kElement + Base::unit() % Base::kBlockUnits * 16;
  }
  __device__ static __forceinline__ long long advance(long long) { return 0; }
  __device__ static __forceinline__ long long skip(int, long long) { return 0; }

  template <class Use>
  __device__ static __forceinline__ void for_each(const Features& features, const char* from,
                                                  long long stride, int point, int valid, Use use) {
#pragma unroll
    for (int pass = 0; pass < Base::kPasses; ++pass) {
      const int at = Base::batch_row() + pass * Base::kPerPass;
      if (Config::chunk % Base::kPerPass != 0 && at >= Config::chunk) break;
      const int position = at < valid ? Points::position(point + at, features.shift, features.images) : -1;
      use(pass, Base::Rows::offset(static_cast<unsigned>(at), static_cast<unsigned>(Base::unit())),
          from + (position < 0 ? 0 : position * stride), position < 0 ? 0 : features.bytes);
    }
  }
};

}  // namespace sparsekiln
