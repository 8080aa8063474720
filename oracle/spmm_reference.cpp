#include "oracle/spmm_reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "oracle/convolution_reference.h"
#include "oracle/multiplied_operands.h"
#include "system/parallel.h"

namespace sparsekiln {
namespace {

/// Batch rows that are computed side by side.
constexpr std::int64_t kLanes = 8;
constexpr std::int64_t kHalf = kLanes / 2;
/// Batch rows for which one widened block of W is used; their x must stay in the cache.
constexpr std::int64_t kBatchRows = 32;

// As wide as AVX2's registers: wider ones are taken apart through memory by GCC 12.
using Vector [[gnu::vector_size(kHalf * 8)]] = double;
using Bits [[gnu::vector_size(kHalf * 8)]] = std::int64_t;

/// One feature of kLanes batch rows. Its alignment is spelled out: `new` may not see that of a vector
/// type.
struct alignas(kHalf * 8) Lanes {
  Vector half[2];

  [[nodiscard]] double get(std::int64_t lane) const { return half[lane / kHalf][lane % kHalf]; }
  void set(std::int64_t lane, double value) { half[lane / kHalf][lane % kHalf] = value; }
};

/// One block of W as float64 and what it is multiplied with; everything [tile][feature].
struct BlockProduct {
  const double* w;
  std::int32_t out, in;
  const Lanes* x;
  std::int64_t x_tile;  ///< distance of tiles in x
  std::int64_t tiles;
  Lanes* y;
  Lanes* magnitude;
};

/// Two output rows at a time: eight chains of multiply-adds keep AVX2 busy, and their operands fit its
/// registers.
template <bool kMagnitude>
[[gnu::always_inline]] inline void multiply_add(const BlockProduct& p) {
  for (std::int64_t tile = 0; tile < p.tiles; ++tile) {
    const Lanes* x = p.x + tile * p.x_tile;
    for (std::int32_t o = 0; o < p.out; o += 2) {
      const double* w0 = p.w + o * p.in;
      const double* w1 = w0 + p.in;
      Lanes* y = p.y + tile * p.out + o;
      Lanes* magnitude = p.magnitude + (kMagnitude ? tile * p.out + o : 0);
      Vector y0[2] = {y[0].half[0], y[0].half[1]};
      Vector y1[2] = {y[1].half[0], y[1].half[1]};
      Vector m0[2] = {}, m1[2] = {};
      if constexpr (kMagnitude)
        for (int h = 0; h < 2; ++h) {
          m0[h] = magnitude[0].half[h];
          m1[h] = magnitude[1].half[h];
        }
      for (std::int32_t k = 0; k < p.in; ++k)
        for (int h = 0; h < 2; ++h) {
          const Vector xk = x[k].half[h];
          y0[h] += xk * w0[k];
          y1[h] += xk * w1[k];
          if constexpr (kMagnitude) {
            const Vector absolute = (Vector)((Bits)xk & 0x7fffffffffffffff);
            m0[h] += absolute * std::fabs(w0[k]);
            m1[h] += absolute * std::fabs(w1[k]);
          }
        }
      for (int h = 0; h < 2; ++h) {
        y[0].half[h] = y0[h];
        y[1].half[h] = y1[h];
        if constexpr (kMagnitude) {
          magnitude[0].half[h] = m0[h];
          magnitude[1].half[h] = m1[h];
        }
      }
    }
  }
}

// One body, compiled for the host with and without AVX2. Products are exact in float64, so fusing them
// changes no bit.
using Multiply = void (*)(const BlockProduct&);

template <bool kMagnitude>
void multiply_portable(const BlockProduct& p) {
  multiply_add<kMagnitude>(p);
}

#ifdef __x86_64__
template <bool kMagnitude>
[[gnu::target("avx2,fma")]] void multiply_avx2(const BlockProduct& p) {
  multiply_add<kMagnitude>(p);
}
#endif

template <bool kMagnitude>
Multiply choose_multiply() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_avx2<kMagnitude>;
#endif
  return multiply_portable<kMagnitude>;
}

/// Up to kBatchRows batch rows: x transposed and widened, shared by all block rows.
class WidenedRows {
 public:
  WidenedRows(const Spmm& problem, const HostOperands& operands, std::int64_t first, std::int64_t count)
      : problem_(problem),
        operands_(operands),
        count_(count),
        tiles_((count + kLanes - 1) / kLanes),
        whole_in_(std::int64_t{problem.layout.cols()} * problem.block.in),
        x_(static_cast<std::size_t>(tiles_ * whole_in_), Lanes{}) {
    const std::int64_t in = problem.in_features();
    std::vector<double> row(static_cast<std::size_t>(in));
    std::vector<double> scratch;
    for (std::int64_t n = 0; n < count; ++n) {
      read_x(problem, operands, first + n, row, scratch);
      Lanes* tile = x_.data() + n / kLanes * whole_in_;
      for (std::int64_t k = 0; k < in; ++k) tile[k].set(n % kLanes, row[static_cast<std::size_t>(k)]);
    }
  }

  /// Where one thread works.
  struct Scratch {
    std::vector<double> narrow;
    std::vector<double> w;
    std::vector<Lanes> y, magnitude;
  };
  [[nodiscard]] Scratch scratch(bool with_magnitude) const {
    const auto block = static_cast<std::size_t>(problem_.block.out * problem_.block.in);
    const auto tile = static_cast<std::size_t>(tiles_ * problem_.block.out);
    return {std::vector<double>(block), std::vector<double>(block), std::vector<Lanes>(tile, Lanes{}),
            std::vector<Lanes>(with_magnitude ? tile : 0, Lanes{})};
  }

  /// Block row `row` into y and magnitude, which begin at the first of these batch rows.
  void compute_row(std::int32_t row, Multiply multiply, Scratch& scratch, double* y,
                   double* magnitude) const {
    const auto [out, in] = problem_.block;
    std::fill(scratch.y.begin(), scratch.y.end(), Lanes{});
    std::fill(scratch.magnitude.begin(), scratch.magnitude.end(), Lanes{});
    std::int32_t block = problem_.layout.crow()[static_cast<std::size_t>(row)];
    for (const std::int32_t col : problem_.layout.row(row)) {
      if (!read_block(problem_, operands_, problem_.block_of_weight(block++), scratch.narrow)) continue;
      widen(scratch.narrow, col, scratch.w);
      multiply({.w = scratch.w.data(),
                .out = out,
                .in = in,
                .x = x_.data() + std::int64_t{col} * in,
                .x_tile = whole_in_,
                .tiles = tiles_,
                .y = scratch.y.data(),
                .magnitude = scratch.magnitude.data()});
    }
    scatter(scratch.y, row, y);
    if (!scratch.magnitude.empty()) scatter(scratch.magnitude, row, magnitude);
  }

 private:
  /// A block of W in block column `col` as the product reads it, [out][in]; zeros beyond the last feature.
  void widen(const std::vector<double>& narrow, std::int32_t col, std::vector<double>& w) const {
    const auto out = static_cast<std::size_t>(problem_.block.out);
    const auto in = static_cast<std::size_t>(problem_.block.in);
    const auto there = static_cast<std::size_t>(std::min<std::int64_t>(
        problem_.block.in, problem_.in_features() - std::int64_t{col} * problem_.block.in));
    for (std::size_t o = 0; o < out; ++o)
      for (std::size_t k = 0; k < in; ++k)
        w[o * in + k] = k >= there ? 0 : problem_.by_columns() ? narrow[k * out + o] : narrow[o * in + k];
  }
  void scatter(const std::vector<Lanes>& tiles, std::int32_t row, double* to) const {
    const std::int64_t out = problem_.block.out;
    const std::int64_t there = std::min(out, problem_.out_features() - row * out);
    for (std::int64_t n = 0; n < count_; ++n)
      for (std::int64_t o = 0; o < there; ++o)
        to[n * problem_.out_features() + row * out + o] =
            tiles[static_cast<std::size_t>(n / kLanes * out + o)].get(n % kLanes);
  }

  const Spmm& problem_;
  const HostOperands& operands_;
  std::int64_t count_;
  std::int64_t tiles_;
  std::int64_t whole_in_;  ///< features of whole blocks
  std::vector<Lanes> x_;
};

/// One batch row in `long double`, row by row.
class ExtendedEntry {
 public:
  ExtendedEntry(const Spmm& problem, const HostOperands& operands, std::int64_t entry)
      : problem_(problem), operands_(operands), x_(static_cast<std::size_t>(problem.in_features())) {
    std::vector<double> scratch;
    read_x(problem, operands, entry, x_, scratch);
  }

  void compute(double* y, double* magnitude) const {
    const std::int64_t out = problem_.block.out;
    std::vector<double> block(static_cast<std::size_t>(out * problem_.block.in));
    std::vector<Sum> sums(static_cast<std::size_t>(out));
    for (std::int32_t row = 0; row < problem_.layout.rows(); ++row) {
      std::fill(sums.begin(), sums.end(), Sum{});
      std::int32_t number = problem_.layout.crow()[static_cast<std::size_t>(row)];
      for (const std::int32_t col : problem_.layout.row(row))
        if (read_block(problem_, operands_, problem_.block_of_weight(number++), block)) add(block, col, sums);
      const std::int64_t there = std::min(out, problem_.out_features() - row * out);
      for (std::int64_t o = 0; o < there; ++o) {
        y[row * out + o] = static_cast<double>(sums[static_cast<std::size_t>(o)].value);
        if (magnitude != nullptr)
          magnitude[row * out + o] = static_cast<double>(sums[static_cast<std::size_t>(o)].magnitude);
      }
    }
  }

 private:
  struct Sum {
    long double value = 0;
    long double magnitude = 0;
  };
  void add(const std::vector<double>& block, std::int32_t col, std::vector<Sum>& sums) const {
    const auto out = static_cast<std::size_t>(problem_.block.out);
    const auto in = static_cast<std::size_t>(problem_.block.in);
    const std::size_t first = static_cast<std::size_t>(col) * in;
    const std::size_t there = std::min(in, x_.size() - first);
    for (std::size_t o = 0; o < out; ++o)
      for (std::size_t k = 0; k < there; ++k) {
        const double w = problem_.by_columns() ? block[k * out + o] : block[o * in + k];
        const long double product = static_cast<long double>(x_[first + k]) * w;
        sums[o].value += product;
        sums[o].magnitude += std::fabs(product);
      }
  }

  const Spmm& problem_;
  const HostOperands& operands_;
  std::vector<double> x_;
};

/// Threads that pay: none beside the caller's for less work than starting one takes.
std::size_t thread_count(const Spmm& problem, std::int64_t count) {
  const double worth = problem.flops(count) / 4e6;
  const auto most = std::min(static_cast<double>(std::max(1u, std::thread::hardware_concurrency())),
                             static_cast<double>(problem.layout.rows()));
  return static_cast<std::size_t>(std::clamp(worth, 1.0, std::max(1.0, most)));
}

}  // namespace

Reference reference(const Spmm& problem, const HostOperands& operands, std::int64_t first, std::int64_t count,
                    bool with_magnitude) {
  if (problem.correlation) return convolution_reference(problem, operands, first, count, with_magnitude);
  const auto size = static_cast<std::size_t>(count * problem.out_features());
  Reference result{std::vector<double>(size), std::vector<double>(with_magnitude ? size : 0)};
  if (problem.sum_type() == DType::f64) {
    for (std::int64_t entry = 0; entry < count; ++entry) {
      const std::int64_t at = entry * problem.out_features();
      ExtendedEntry(problem, operands, first + entry)
          .compute(result.y.data() + at, with_magnitude ? result.magnitude.data() + at : nullptr);
    }
    return result;
  }
  const Multiply multiply = with_magnitude ? choose_multiply<true>() : choose_multiply<false>();

  for (std::int64_t done = 0; done < count; done += kBatchRows) {
    const std::int64_t entries = std::min(kBatchRows, count - done);
    const WidenedRows rows(problem, operands, first + done, entries);
    double* y = result.y.data() + done * problem.out_features();
    double* magnitude = with_magnitude ? result.magnitude.data() + done * problem.out_features() : nullptr;

    // Each row is summed by one thread in the same order, so the result does not depend on the number of
    // threads.
    std::atomic<std::int32_t> next = 0;
    std::vector<WidenedRows::Scratch> scratch(thread_count(problem, entries), rows.scratch(with_magnitude));
    in_parallel(scratch.size(), [&](std::size_t thread) {
      for (std::int32_t row = next++; row < problem.layout.rows(); row = next++)
        rows.compute_row(row, multiply, scratch[thread], y, magnitude);
    });
  }
  return result;
}

}  // namespace sparsekiln
