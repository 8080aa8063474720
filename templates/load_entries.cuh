#pragma once

#include "activation.cuh"
#include "output.cuh"
#include "ptx.cuh"
#include "ptx_mma.cuh"

// Operands of the gradient of the weight: batch entries of dy (a block row's features) and of x (those of a
// run's block columns, side by side), from global to shared memory.

namespace sparsekiln {

/// Where the pairs that are summed lie: LaunchPairs of compiler/launch_operands.h.
struct ActivationPairs {
  struct Pair {
    const void* x;
    const void* dy;
    const void* z;
  };
  Pair pair[8];
  int count;

  /// Copies the pairs to shared memory, where they can be told apart by number: a parameter's addresses are
  /// constants (read here in one go, so that the compiler needs no address in a register). To be followed by
  /// a barrier.
  __device__ __forceinline__ const Pair* shared() const {
    __shared__ Pair copies[8];
    Pair read[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) read[i] = {ptx::kept(pair[i].x), ptx::kept(pair[i].dy), ptx::kept(pair[i].z)};
    if (threadIdx.x == 0) {
#pragma unroll
      for (int i = 0; i < 8; ++i) copies[i] = read[i];
    }
    return copies;
  }
};

/// A run of blocks, see compiler/block_runs.h.
struct __align__(16) BlockRun {
  int row;
  int first;
  int blocks;
  int first_of_row;
};

/// Operand types: an element as a float.
struct F32Operand {
  using Element = float;
  __device__ static __forceinline__ float read(const float* from) { return *from; }
  __device__ static __forceinline__ float of_word(unsigned bits, int) { return __uint_as_float(bits); }
  /// A word of dy times the derivative at a word of z.
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

/// A thread's share of copying a chunk of kUnits × 16 bytes an entry: one unit of every kPerPass-th entry.
template <class Config, int kUnits, class Rows>
struct EntryCopy {
  enum : int {
    kPerPass = Config::threads / kUnits,
    kPasses = (Config::chunk + kPerPass - 1) / kPerPass,
    kBytes = Config::chunk * kUnits * 16,
  };
  static_assert(Config::threads % kUnits == 0);

  __device__ static __forceinline__ int unit() { return static_cast<int>(threadIdx.x) % kUnits; }
  __device__ static __forceinline__ int entry() { return static_cast<int>(threadIdx.x) / kUnits; }

  /// Calls use(pass, offset in shared memory, address, readable) for each of them. `from`: this thread's unit
  /// of its first entry; `valid`: entries that exist.
  template <class Use>
  __device__ static __forceinline__ void for_each(const char* from, long long entry_bytes, int valid,
                                                  Use use) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int at = entry() + pass * kPerPass;
      if (Config::chunk % kPerPass != 0 && at >= Config::chunk) break;
      use(pass, Rows::offset(static_cast<unsigned>(at), static_cast<unsigned>(unit())), from, at < valid);
      from += kPerPass * entry_bytes;
    }
  }
  /// What is not read becomes zeros. `some`: any address that may be named.
  __device__ static __forceinline__ void async(unsigned shared, const char* from, long long entry_bytes,
                                               int valid, const void* some) {
    for_each(from, entry_bytes, valid, [=](int, unsigned offset, const char* address, bool readable) {
      ptx::copy_async<0, 0>(shared + offset, readable ? address : some, readable ? 16 : 0);
    });
  }
  __device__ static __forceinline__ void fetch(uint4 (&held)[kPasses], const char* from,
                                               long long entry_bytes, int valid) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) held[pass] = make_uint4(0, 0, 0, 0);
    for_each(from, entry_bytes, valid, [&](int pass, unsigned, const char* address, bool readable) {
      if (readable) held[pass] = *reinterpret_cast<const uint4*>(address);
    });
  }
  __device__ static __forceinline__ void put(unsigned shared, const uint4 (&held)[kPasses]) {
    for_each(nullptr, 0, 0, [&](int pass, unsigned offset, const char*, bool) {
      ptx::store_shared(shared + offset, held[pass]);
    });
  }
};

/// The stages of shared memory through which the chunks of one run pass, filled ahead by asynchronous copies
/// (sm_80), or two of them through registers. Tile names how rows of each operand lie in shared memory. For
/// each chunk: acquire(), read dy() and x(), release(); then drain().
template <class Config, class Tile>
class EntryStages {
 public:
  enum : int {
    kElement = static_cast<int>(sizeof(typename Config::Element)),
    kBlockUnits = Config::block_in * kElement / 16,
    kUnitsX = Config::width * kBlockUnits,
    kUnitsDy = Config::block_out * kElement / 16,
  };
  using RowsX = typename Tile::template Rows<kUnitsX>;
  using RowsDy = typename Tile::template Rows<kUnitsDy>;
  using CopyX = EntryCopy<Config, kUnitsX, RowsX>;
  using CopyDy = EntryCopy<Config, kUnitsDy, RowsDy>;
  enum : int {
    kFirstZ = CopyDy::kBytes,
    kFirstX = CopyDy::kBytes * (Config::has_derivative ? 2 : 1),
    kStage = kFirstX + CopyX::kBytes,
  };

  template <class Table>
  __device__ __forceinline__ EntryStages(const ActivationPairs::Pair* pairs, int count, int n,
                                         long long x_stride, long long dy_stride, long long z_stride,
                                         const Table& table, const BlockRun& run, unsigned wanted)
      : pairs_(pairs),
        count_(count),
        n_(n),
        x_bytes_(x_stride * kElement),
        dy_bytes_(dy_stride * kElement),
        z_bytes_(z_stride * kElement) {
    const int block = CopyX::unit() / kBlockUnits;
    has_x_ = (wanted >> block & 1) != 0;
    const int column = has_x_ ? table.column(run.first + block) : 0;
    x_first_ = CopyX::entry() * x_bytes_ + static_cast<long long>(column) * (Config::block_in * kElement) +
               CopyX::unit() % kBlockUnits * 16;
    const long long features =
        static_cast<long long>(run.row) * (Config::block_out * kElement) + CopyDy::unit() * 16;
    dy_first_ = CopyDy::entry() * dy_bytes_ + features;
    z_first_ = CopyDy::entry() * z_bytes_ + features;
    if (n_ == 0) pair_ = count_;
    turn_to_pair();
    if constexpr (Config::async_copy) {
#pragma unroll
      for (int stage = 0; stage < Config::stages - 1; ++stage) queue();
    } else {
      fetch();
      put();
    }
  }

  /// Of all pairs.
  __device__ __forceinline__ int chunks() const {
    return count_ * ((n_ + Config::chunk - 1) / Config::chunk);
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
  /// After the last chunk, whose copies were the last to be waited for: nobody reads shared memory any more.
  __device__ __forceinline__ void drain() { __syncthreads(); }

 private:
  enum : bool { kHolds = !Config::async_copy };

  __device__ static __forceinline__ unsigned stage(int index) {
    return ptx::dynamic_shared() + static_cast<unsigned>(index * kStage);
  }
  __device__ static __forceinline__ int next(int stage) {
    return stage + 1 == Config::stages ? 0 : stage + 1;
  }
  __device__ __forceinline__ bool done() const { return pair_ >= count_; }
  __device__ __forceinline__ void turn_to_pair() {
    if (done()) return;
    const ActivationPairs::Pair pair = pairs_[pair_];
    x_ = static_cast<const char*>(pair.x) + x_first_;
    dy_ = static_cast<const char*>(pair.dy) + dy_first_;
    if constexpr (Config::has_derivative) z_ = static_cast<const char*>(pair.z) + z_first_;
  }
  __device__ __forceinline__ void advance() {
    entry_ += Config::chunk;
    if (entry_ < n_) {
      x_ += Config::chunk * x_bytes_;
      dy_ += Config::chunk * dy_bytes_;
      if constexpr (Config::has_derivative) z_ += Config::chunk * z_bytes_;
      return;
    }
    entry_ = 0;
    ++pair_;
    turn_to_pair();
  }
  __device__ __forceinline__ int valid() const { return n_ - entry_; }
  __device__ __forceinline__ int valid_x() const { return has_x_ ? valid() : 0; }
  __device__ __forceinline__ void queue() {
    if (!done()) {
      const unsigned to = stage(filling_);
      const void* const some = dy_;
      CopyDy::async(to, dy_, dy_bytes_, valid(), some);
      if constexpr (Config::has_derivative) CopyDy::async(to + kFirstZ, z_, z_bytes_, valid(), some);
      CopyX::async(to + kFirstX, x_, x_bytes_, valid_x(), some);
      advance();
    }
    ptx::commit_copies();
    filling_ = next(filling_);
  }
  /// dy times the derivative, of what this thread has copied.
  __device__ __forceinline__ void derive() {
    CopyDy::for_each(nullptr, 0, 0, [&](int, unsigned offset, const char*, bool) {
      unsigned dy[4];
      unsigned z[4];
      ptx::load_shared<0>(dy, stage(current_) + offset);
      ptx::load_shared<0>(z, stage(current_) + kFirstZ + offset);
      ptx::store_shared(stage(current_) + offset,
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
    CopyDy::fetch(held_dy_, dy_, dy_bytes_, valid());
    if constexpr (Config::has_derivative) {
      uint4 z[CopyDy::kPasses];
      CopyDy::fetch(z, z_, z_bytes_, valid());
#pragma unroll
      for (int pass = 0; pass < CopyDy::kPasses; ++pass) held_dy_[pass] = derived(held_dy_[pass], z[pass]);
    }
    CopyX::fetch(held_x_, x_, x_bytes_, valid_x());
    advance();
  }
  __device__ __forceinline__ void put() {
    if (holds_) {
      CopyDy::put(stage(filling_), held_dy_);
      CopyX::put(stage(filling_) + kFirstX, held_x_);
    }
    filling_ = next(filling_);
  }

  const ActivationPairs::Pair* const pairs_;
  const int count_;
  const int n_;
  const long long x_bytes_;  ///< from one entry to the next, here and below
  const long long dy_bytes_;
  const long long z_bytes_;
  long long x_first_;  ///< of this thread, from a pair's x on, in bytes
  long long dy_first_;
  long long z_first_;
  bool has_x_;
  int pair_ = 0;   ///< that the next chunk is of
  int entry_ = 0;  ///< its first
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
