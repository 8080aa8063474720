#pragma once

#include "load_batch_rows.cuh"

// Feature-major operands of the gradient of the weight: a row of shared memory is a feature, with the batch
// rows of a chunk next to each other.

namespace sparsekiln {

/// The copy of feature-major operands: a thread copies one unit of every kPerPass-th feature. In the last
/// unit of a feature, only batch rows that exist are read.
template <class Config, int kSide, int kBlocks, int kEnd, template <int> class RowsOf>
struct ActivationCopy<Config, kSide, kBlocks, kEnd, RowsOf, true> {
  enum : int {
    kElement = static_cast<int>(sizeof(typename Config::Element)),
    kElements = 16 / kElement,
    kUnits = Config::chunk / kElements,
    kFeatures = kSide * kBlocks,
    kPerPass = Config::threads / kUnits,
    kPasses = (kFeatures + kPerPass - 1) / kPerPass,
    kBytes = kFeatures * kUnits * 16,
    kOfBlock = kPerPass < kSide ? kSide / kPerPass : 1,  ///< passes within one block
    kVisited = (kPasses + kOfBlock - 1) / kOfBlock,      ///< blocks that a thread copies from
  };
  enum : bool { kPartial = true };
  static_assert(Config::threads % kUnits == 0);
  using Rows = RowsOf<kUnits>;

  struct Features {
    int columns[kVisited];
    template <class Column>
    __device__ __forceinline__ Features(Column column, const Images<Config>&) {
#pragma unroll
      for (int visit = 0; visit < kVisited; ++visit) {
        const int row = feature() + visit * kOfBlock * kPerPass;
        columns[visit] = row < kFeatures ? column(row / kSide) : -1;
      }
    }
  };

  /// From an operand's first element to this thread's unit of its first feature in block column 0. `stride`:
  /// bytes from one feature to the next.
  __device__ static __forceinline__ long long first(const Features&, long long stride) {
    return feature() % kSide * stride + unit() * 16;
  }
  __device__ static __forceinline__ long long advance(long long) { return Config::chunk * kElement; }
  __device__ static __forceinline__ long long skip(int batch_rows, long long) {
    return batch_rows * kElement;
  }

  template <class Use>
  __device__ static __forceinline__ void for_each(const Features& features, const char* from,
                                                  long long stride, [[maybe_unused]] int first_row, int valid,
                                                  Use use) {
    const int bytes = min(max(valid - unit() * kElements, 0), int{kElements}) * kElement;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int at = feature() + pass * kPerPass;
      if (kFeatures % kPerPass != 0 && at >= kFeatures) break;
      const int column = features.columns[pass / kOfBlock];
      const int ahead = column * kSide + pass % kOfBlock * kPerPass;
      const bool exists = column >= 0 && (kEnd == 0 || feature() % kSide + ahead < kEnd);
      use(pass, Rows::offset(static_cast<unsigned>(at), static_cast<unsigned>(unit())), from + ahead * stride,
          exists ? bytes : 0);
    }
  }

 private:
  __device__ static __forceinline__ int unit() { return static_cast<int>(threadIdx.x) % kUnits; }
  __device__ static __forceinline__ int feature() { return static_cast<int>(threadIdx.x) / kUnits; }
};

}  // namespace sparsekiln
