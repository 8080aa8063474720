#pragma once

#include "activation.cuh"
#include "load_unit.cuh"
#include "output.cuh"
#include "ptx.cuh"
#include "ptx_mma.cuh"

// Operand loading for the gradient of the weight: batch rows of dy (the features of one block row) and of x
// (the features of a run's block columns, next to each other) are copied from global to shared memory, in the
// order that they have there.

namespace sparsekiln {

/// The pairs of activations to be summed: LaunchPairs of compiler/launch_operands.h.
struct ActivationPairs {
  struct Pair {
    const void* x;
    const void* dy;
    const void* z;
  };
  Pair pair[8];
  int count;

  /// One of them, whose number is a constant: so that the compiler needs no address of the parameter in a
  /// register.
  __device__ __forceinline__ Pair read(int number) const {
    return {ptx::kept(pair[number].x), ptx::kept(pair[number].dy), ptx::kept(pair[number].z)};
  }
};

/// The pairs, each selected by its number: a kernel parameter can only be addressed by constants. Here from a
/// copy in shared memory. The caller must call a barrier before it selects the first.
template <bool kCopied>
class SelectedPairs {
 public:
  __device__ __forceinline__ explicit SelectedPairs(const ActivationPairs& pairs) : copies_(copy(pairs)) {}
  __device__ __forceinline__ ActivationPairs::Pair operator[](int number) const { return copies_[number]; }

 private:
  __device__ static __forceinline__ const ActivationPairs::Pair* copy(const ActivationPairs& pairs) {
    __shared__ ActivationPairs::Pair copies[8];
    ActivationPairs::Pair read[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) read[i] = pairs.read(i);
    if (threadIdx.x == 0) {
#pragma unroll
      for (int i = 0; i < 8; ++i) copies[i] = read[i];
    }
    return copies;
  }
  const ActivationPairs::Pair* const copies_;
};
/// Where accumulators take all of shared memory: by comparisons.
template <>
class SelectedPairs<false> {
 public:
  __device__ __forceinline__ explicit SelectedPairs(const ActivationPairs& pairs) : pairs_(pairs) {}
  __device__ __forceinline__ ActivationPairs::Pair operator[](int number) const {
    ActivationPairs::Pair found = pairs_.read(0);
#pragma unroll
    for (int i = 1; i < 8; ++i) {
      const ActivationPairs::Pair other = pairs_.read(i);
      found.x = number == i ? other.x : found.x;
      found.dy = number == i ? other.dy : found.dy;
      found.z = number == i ? other.z : found.z;
    }
    return found;
  }

 private:
  const ActivationPairs& pairs_;
};

/// Some of the batch rows of each pair.
struct BatchSlice {
  int first;
  int count;
};

/// A run of blocks, see compiler/block_runs.h.
struct __align__(16) BlockRun {
  int row;
  int first;
  int blocks;
  int first_of_row;
};

/// Operand types: they convert an element to a float.
struct F32Operand {
  using Element = float;
  __device__ static __forceinline__ float read(const float* from) { return *from; }
  __device__ static __forceinline__ float of_word(unsigned bits, int) { return __uint_as_float(bits); }
  /// A word of dy multiplied by the derivative at a word of z.
  template <class Activation>
  __device__ static __forceinline__ unsigned derived(unsigned dy, unsigned z) {
    return __float_as_uint(__uint_as_float(dy) * Activation::derivative(__uint_as_float(z)));
  }
};
template <class Output>
struct PackedOperand {
  using Element = unsigned short;
  __device__ static __forceinline__ float read(const Element* from) { return Output::read(from); }
  __device__ static __forceinline__ float of_word(unsigned bits, int half) {
    return Output::unpack(half == 0 ? bits & 0xffff : bits >> 16);
  }
  template <class Activation>
  __device__ static __forceinline__ unsigned derived(unsigned dy, unsigned z) {
    return Output::pack(of_word(dy, 0) * Activation::derivative(of_word(z, 0)),
                        of_word(dy, 1) * Activation::derivative(of_word(z, 1)));
  }
};
using F16Operand = PackedOperand<F16Output>;
using Bf16Operand = PackedOperand<Bf16Output>;

/// The units that a thread copies of a chunk: kSide features of each of kBlocks blocks. This one is for
/// batch-major operands, where a row of shared memory is a batch row, and copies one unit of every
/// kPerPass-th batch row. load_features.cuh has the feature-major one. kEnd: the number of features of the
/// operand where the last block is partial, otherwise 0.
template <class Config, int kSide, int kBlocks, int kEnd, template <int> class RowsOf, bool kFeatureMajor>
struct ActivationCopy {
  enum : int {
    kElement = static_cast<int>(sizeof(typename Config::Element)),
    kElements = 16 / kElement,
    kBlockUnits = kSide * kElement / 16,
    kUnits = kBlocks * kBlockUnits,
    kPerPass = Config::threads / kUnits,
    kPasses = (Config::chunk + kPerPass - 1) / kPerPass,
    kBytes = Config::chunk * kUnits * 16,
  };
  enum : bool { kPartial = kEnd != 0 };  ///< whether a unit may exist in part
  static_assert(Config::threads % kUnits == 0);
  using Rows = RowsOf<kUnits>;

  /// The features that this thread copies. column(block) is the block column (or block row) of a run's block,
  /// or -1 if the block is to become zeros.
  struct Features {
    int first;  ///< the block's first feature
    int bytes;  ///< bytes of the thread's unit that exist
    template <class Column>
    __device__ __forceinline__ Features(Column column, const Images<Config>&) {
      const int found = column(unit() / kBlockUnits);
      first = found < 0 ? 0 : found * kSide;
      bytes = found < 0 ? 0 : existing_bytes(first);
    }
  };
  /// Bytes of the thread's unit that exist, of a block whose first feature is `first`.
  __device__ static __forceinline__ int existing_bytes(int first) {
    if constexpr (kEnd == 0) return 16;
    return min(max(kEnd - first - unit() % kBlockUnits * kElements, 0), int{kElements}) * kElement;
  }

  /// Bytes from an operand's first batch row to this thread's first unit, and from one chunk to the next.
  /// `stride`: bytes from one batch row to the next.
  __device__ static __forceinline__ long long first(const Features& features, long long stride) {
    return batch_row() * stride + static_cast<long long>(features.first) * kElement +
           unit() % kBlockUnits * 16;
  }
  __device__ static __forceinline__ long long advance(long long stride) { return Config::chunk * stride; }
  /// Bytes from one batch row to the one so many further on.
  __device__ static __forceinline__ long long skip(int batch_rows, long long stride) {
    return batch_rows * stride;
  }

  /// Calls use(pass, offset in shared memory, address, bytes that exist) for each unit. `from`: address of
  /// the thread's first unit, in the chunk's first batch row, whose number is `first_row`; `valid`: batch
  /// rows from there on that exist.
  template <class Use>
  __device__ static __forceinline__ void for_each(const Features& features, const char* from,
                                                  long long stride, [[maybe_unused]] int first_row, int valid,
                                                  Use use) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int at = batch_row() + pass * kPerPass;
      if (Config::chunk % kPerPass != 0 && at >= Config::chunk) break;
      use(pass, Rows::offset(static_cast<unsigned>(at), static_cast<unsigned>(unit())), from,
          at < valid ? features.bytes : 0);
      from += kPerPass * stride;
    }
  }

  __device__ static __forceinline__ int unit() { return static_cast<int>(threadIdx.x) % kUnits; }
  __device__ static __forceinline__ int batch_row() { return static_cast<int>(threadIdx.x) / kUnits; }
};

template <class Config, int kBlocks, template <int> class RowsOf>
struct PointsCopy;

/// The stages of shared memory through which the chunks of one run pass. They are filled ahead by
/// asynchronous copies (sm_80), or two of them through registers. Tile defines how the rows of each operand
/// are laid out in shared memory. For each chunk: acquire(), read dy() and x(), release(). After the last
/// one: drain().
template <class Config, class Tile>
class SddmmStages {
 public:
  enum : int {
    kElement = static_cast<int>(sizeof(typename Config::Element)),
    kThreads = Config::threads,  ///< that read stages
  };
  using CopyX = typename Select<Config::convolves, PointsCopy<Config, Config::width, Tile::template Rows>,
                                ActivationCopy<Config, Config::block_in, Config::width, Config::in_features,
                                               Tile::template Rows, Config::feature_major>>::Type;
  using CopyDy = ActivationCopy<Config, Config::block_out, 1, Config::out_features, Tile::template Rows,
                                Config::feature_major>;
  /// As the operand that has a place in memory for each of its elements: dy.
  using CopyZ = typename Select<Config::exchanged, CopyX, CopyDy>::Type;
  using RowsDy = typename CopyDy::Rows;
  enum : int {
    kFirstX = CopyDy::kBytes,
    kFirstZ = kFirstX + CopyX::kBytes,
    kDerived = Config::exchanged ? int{kFirstX} : 0,  ///< what is multiplied by the derivative at z
    kStage = kFirstZ + (Config::has_derivative ? int{CopyZ::kBytes} : 0),
  };

  template <class Table>
  __device__ __forceinline__ SddmmStages(const SelectedPairs<Config::copies_pairs>& pairs, int count,
                                         BatchSlice rows, long long x_stride, long long dy_stride,
                                         long long z_stride, const Table& table, const BlockRun& run,
                                         unsigned wanted, const Images<Config>& images)
      : pairs_(pairs),
        count_(count),
        rows_(rows),
        x_bytes_(x_stride * kElement),
        dy_bytes_(dy_stride * kElement),
        z_bytes_(z_stride * kElement),
        x_features_(
            [&](int block) { return (wanted >> block & 1) != 0 ? table.column(run.first + block) : -1; },
            images),
        dy_features_([&](int) { return run.row; }, images) {
    x_first_ = CopyX::first(x_features_, x_bytes_) + CopyX::skip(rows.first, x_bytes_);
    dy_first_ = CopyDy::first(dy_features_, dy_bytes_) + CopyDy::skip(rows.first, dy_bytes_);
    z_first_ = CopyZ::first(z_features(), z_bytes_) + CopyZ::skip(rows.first, z_bytes_);
    if (rows.count == 0) pair_ = count_;
    begin_pair();
    if constexpr (Config::async_copy) {
#pragma unroll
      for (int stage = 0; stage < Config::stages - 1; ++stage) queue();
    } else {
      fetch();
      put();
    }
  }

  /// The number of chunks of all pairs.
  __device__ __forceinline__ int chunks() const {
    return count_ * ((rows_.count + Config::chunk - 1) / Config::chunk);
  }
  __device__ __forceinline__ void acquire() {
    current_ = next(current_);
    if constexpr (Config::async_copy) {
      ptx::wait_copies<Config::stages - 2>();
      if constexpr (Config::has_derivative) derive();
      __syncthreads();
      queue();
    } else {
      __syncthreads();
      fetch();
    }
  }
  __device__ __forceinline__ unsigned dy() const { return stage(current_); }
  __device__ __forceinline__ unsigned x() const { return stage(current_) + kFirstX; }
  __device__ __forceinline__ void release() {
    if constexpr (!Config::async_copy) put();
  }
  /// Call after the last chunk: no thread reads shared memory after it returns. All copies have arrived by
  /// then.
  __device__ __forceinline__ void drain() { __syncthreads(); }
  /// A barrier of the threads that read stages, and memory that they may use after the last chunk.
  __device__ static __forceinline__ void sync() { __syncthreads(); }
  __device__ static __forceinline__ unsigned free_memory() { return ptx::dynamic_shared(); }

 private:
  enum : bool { kHolds = !Config::async_copy };

  __device__ static __forceinline__ unsigned stage(int index) {
    return ptx::dynamic_shared() + static_cast<unsigned>(index * kStage);
  }
  __device__ static __forceinline__ int next(int stage) {
    return stage + 1 == Config::stages ? 0 : stage + 1;
  }
  __device__ __forceinline__ bool done() const { return pair_ >= count_; }
  __device__ __forceinline__ void begin_pair() {
    if (done()) return;
    const ActivationPairs::Pair pair = pairs_[pair_];
    x_ = static_cast<const char*>(Config::exchanged ? pair.dy : pair.x) + x_first_;
    dy_ = static_cast<const char*>(Config::exchanged ? pair.x : pair.dy) + dy_first_;
    if constexpr (Config::has_derivative) z_ = static_cast<const char*>(pair.z) + z_first_;
  }
  __device__ __forceinline__ void advance() {
    batch_row_ += Config::chunk;
    if (batch_row_ < rows_.count) {
      x_ += CopyX::advance(x_bytes_);
      dy_ += CopyDy::advance(dy_bytes_);
      if constexpr (Config::has_derivative) z_ += CopyZ::advance(z_bytes_);
      return;
    }
    batch_row_ = 0;
    ++pair_;
    begin_pair();
  }
  __device__ __forceinline__ int valid() const { return rows_.count - batch_row_; }
  __device__ __forceinline__ int first_row() const { return rows_.first + batch_row_; }
  __device__ __forceinline__ void queue() {
    if (!done()) {
      const unsigned to = stage(filling_);
      copy<CopyDy>(to, dy_features_, dy_, dy_bytes_);
      if constexpr (Config::has_derivative) copy<CopyZ>(to + kFirstZ, z_features(), z_, z_bytes_);
      copy<CopyX>(to + kFirstX, x_features_, x_, x_bytes_);
      advance();
    }
    ptx::commit_copies();
    filling_ = next(filling_);
  }
  /// Queues the copies of a chunk's units. Bytes that are not read become zeros.
  template <class Copy>
  __device__ __forceinline__ void copy(unsigned shared, const typename Copy::Features& features,
                                       const char* from, long long stride) const {
    const char* const some = dy_;  // a valid address, where nothing is read
    Copy::for_each(features, from, stride, first_row(), valid(),
                   [=](int, unsigned offset, const char* address, int bytes) {
                     QueueUnits<kElement, false>().template unit<0, 0, Config::alignment>(
                         shared + offset, bytes != 0 ? address : some, bytes);
                   });
  }
  /// Reads units into registers; put_held() writes them to shared memory.
  template <class Copy>
  __device__ __forceinline__ void hold(uint4 (&held)[Copy::kPasses], const typename Copy::Features& features,
                                       const char* from, long long stride) const {
    Copy::for_each(features, from, stride, first_row(), valid(),
                   [&](int pass, unsigned, const char* address, int bytes) {
                     FetchUnit<kElement, Copy::kPartial>{held[pass]}.template unit<0, 0, Config::alignment>(
                         0, address, bytes);
                   });
  }
  template <class Copy>
  __device__ static __forceinline__ void put_held(unsigned shared, const typename Copy::Features& features,
                                                  const uint4 (&held)[Copy::kPasses]) {
    Copy::for_each(features, nullptr, 0, 0, 0, [&](int pass, unsigned offset, const char*, int) {
      ptx::store_shared(shared + offset, held[pass]);
    });
  }
  __device__ __forceinline__ const typename CopyZ::Features& z_features() const {
    if constexpr (Config::exchanged)
      return x_features_;
    else
      return dy_features_;
  }
  /// Multiplies what this thread has copied of dy by the derivative.
  __device__ __forceinline__ void derive() {
    CopyZ::for_each(z_features(), nullptr, 0, 0, 0, [&](int, unsigned offset, const char*, int) {
      unsigned dy[4];
      unsigned z[4];
      ptx::load_shared<0>(dy, stage(current_) + kDerived + offset);
      ptx::load_shared<0>(z, stage(current_) + kFirstZ + offset);
      ptx::store_shared(stage(current_) + kDerived + offset,
                        derived(make_uint4(dy[0], dy[1], dy[2], dy[3]), make_uint4(z[0], z[1], z[2], z[3])));
    });
  }
  __device__ static __forceinline__ uint4 derived(const uint4& dy, const uint4& z) {
    using Operand = typename Config::Operand;
    using Activation = typename Config::Derivative;
    return make_uint4(
        Operand::template derived<Activation>(dy.x, z.x), Operand::template derived<Activation>(dy.y, z.y),
        Operand::template derived<Activation>(dy.z, z.z), Operand::template derived<Activation>(dy.w, z.w));
  }
  __device__ __forceinline__ void fetch() {
    holds_ = !done();
    if (!holds_) return;
    hold<CopyDy>(held_dy_, dy_features_, dy_, dy_bytes_);
    hold<CopyX>(held_x_, x_features_, x_, x_bytes_);
    if constexpr (Config::has_derivative) {
      uint4 z[CopyZ::kPasses];
      hold<CopyZ>(z, z_features(), z_, z_bytes_);
#pragma unroll
      for (int pass = 0; pass < CopyZ::kPasses; ++pass) {
        uint4& held = Config::exchanged ? held_x_[pass] : held_dy_[pass];
        held = derived(held, z[pass]);
      }
    }
    advance();
  }
  __device__ __forceinline__ void put() {
    if (holds_) {
      put_held<CopyDy>(stage(filling_), dy_features_, held_dy_);
      put_held<CopyX>(stage(filling_) + kFirstX, x_features_, held_x_);
    }
    filling_ = next(filling_);
  }

  const SelectedPairs<Config::copies_pairs>& pairs_;
  const int count_;
  const BatchSlice rows_;
  const long long x_bytes_;  ///< from one row in memory to the next; likewise below
  const long long dy_bytes_;
  const long long z_bytes_;
  const typename CopyX::Features x_features_;
  const typename CopyDy::Features dy_features_;
  long long x_first_;  ///< bytes from a pair's x to this thread's first unit
  long long dy_first_;
  long long z_first_;
  int pair_ = 0;       ///< the pair of the next chunk
  int batch_row_ = 0;  ///< the first batch row of the next chunk, from the slice's first on
  const char* x_ = nullptr;
  const char* dy_ = nullptr;
  const char* z_ = nullptr;
  int filling_ = 0;
  int current_ = Config::stages - 1;
  bool holds_ = false;
  uint4 held_x_[kHolds ? int{CopyX::kPasses} : 1];
  uint4 held_dy_[kHolds ? int{CopyDy::kPasses} : 1];
};

}  // namespace sparsekiln
