#include "oracle/convolution_reference.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <thread>
#include <vector>

#include "oracle/multiplied_operands.h"
#include "system/parallel.h"

namespace sparsekiln {
namespace {

using Extents = Convolution::Extents;

/// Rows of y that are computed at a time: their x is held in float64.
constexpr std::int64_t kRows = 256;
/// Features of y that are computed side by side; blocks have multiples of it.
constexpr std::size_t kLanes = 8;

/// The position that has this number in row-major order.
Extents position(std::int64_t number, const Extents& extents) {
  Extents at{};
  for (std::size_t i = 3; i-- > 0; number /= extents[i])
    at[i] = static_cast<std::int32_t>(number % extents[i]);
  return at;
}

/// Which positions of x, or of dy, are multiplied for one of y, or of dx.
class Reads {
 public:
  Reads(const Convolution& convolution, Operation operation)
      : convolution_(convolution),
        windows_((operation == Operation::forward) != convolution.transposed),
        of_x_(operation == Operation::forward ? convolution.input : convolution.output()),
        of_y_(operation == Operation::forward ? convolution.output() : convolution.input) {}

  /// The row of x that `tap` multiplies for a row of y; -1: none.
  [[nodiscard]] std::int64_t row(std::int64_t of_y, std::int32_t tap) const {
    const std::int64_t positions = std::int64_t{of_y_[0]} * of_y_[1] * of_y_[2];
    const Extents at = position(of_y % positions, of_y_);
    const Extents r = position(tap, convolution_.kernel);
    std::int64_t number = of_y / positions;  // the image
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t coordinate = read(i, at[i], r[i]);
      if (coordinate < 0 || coordinate >= of_x_[i]) return -1;
      number = number * of_x_[i] + coordinate;
    }
    return number;
  }

 private:
  /// In one dimension. It may be outside; -1 where no position would do.
  [[nodiscard]] std::int64_t read(std::size_t i, std::int64_t at, std::int64_t tap) const {
    const std::int64_t stride = convolution_.stride[i];
    const std::int64_t offset = tap * convolution_.dilation[i] - convolution_.padding_before[i];
    if (windows_) return at * stride + offset;
    return (at - offset) % stride == 0 ? (at - offset) / stride : -1;
  }

  const Convolution& convolution_;
  bool windows_;  ///< y's positions have windows of x; else x's have windows of y
  Extents of_x_;
  Extents of_y_;
};

/// A block of W that is multiplied for a block of y's features.
struct Product {
  std::int32_t block = 0;  ///< W's number, taps counted
  std::int32_t of_x = 0;   ///< block of x's features
  std::int32_t tap = 0;
};

/// By block of y's features, in W's order.
std::vector<std::vector<Product>> products_of(const Spmm& problem) {
  const Layout& weight = problem.weight;
  const std::int32_t taps = problem.taps();
  std::vector<std::vector<Product>> products(
      static_cast<std::size_t>(problem.by_columns() ? weight.cols() / taps : weight.rows()));
  std::int32_t block = 0;
  for (std::int32_t row = 0; row < weight.rows(); ++row)
    for (const std::int32_t col : weight.row(row)) {
      const std::int32_t of_y = problem.by_columns() ? col / taps : row;
      const std::int32_t of_x = problem.by_columns() ? row : col / taps;
      products[static_cast<std::size_t>(of_y)].push_back({block++, of_x, col % taps});
    }
  return products;
}

/// Sums of products, and of their magnitudes. `Sum`: double, or for float64 operands `long double`.
template <class Sum>
struct Sums {
  std::vector<Sum> y;
  std::vector<double> magnitude;
};

/// Adds x·w to y, w being [in][out]. Products of two elements of 32 bits or fewer are exact in float64.
template <class Sum>
void add(const double* x, const double* w, std::size_t in, std::size_t out, Sum* y, double* magnitude) {
  for (std::size_t first = 0; first < out; first += kLanes) {
    std::array<Sum, kLanes> sums;
    std::array<double, kLanes> magnitudes;
    std::copy_n(y + first, kLanes, sums.begin());
    std::copy_n(magnitude + first, kLanes, magnitudes.begin());
    for (std::size_t c = 0; c < in; ++c)
      for (std::size_t o = 0; o < kLanes; ++o) {
        const Sum product = Sum{x[c]} * w[c * out + first + o];
        sums[o] += product;
        magnitudes[o] += std::fabs(static_cast<double>(product));
      }
    std::copy_n(sums.begin(), kLanes, y + first);
    std::copy_n(magnitudes.begin(), kLanes, magnitude + first);
  }
}

/// Up to kRows rows of y, with the rows of x that they need.
class Rows {
 public:
  Rows(const Spmm& problem, const HostOperands& operands, std::int64_t first, std::int64_t count)
      : problem_(problem), operands_(operands), count_(static_cast<std::size_t>(count)) {
    const Reads reads(problem.convolution, problem.operation);
    std::vector<double> scratch;
    for (std::int64_t row = 0; row < count; ++row)
      for (std::int32_t tap = 0; tap < problem.taps(); ++tap) {
        const std::int64_t of_x = reads.row(first + row, tap);
        if (of_x < 0) {
          x_.push_back(nullptr);
          continue;
        }
        const auto [place, fresh] = rows_.try_emplace(of_x);
        if (fresh) {
          place->second.resize(static_cast<std::size_t>(problem.in_features()));
          read_x(problem, operands, of_x, place->second, scratch);
          place->second.resize(static_cast<std::size_t>(problem.in_blocks()) * block_in());  // zeros
        }
        x_.push_back(place->second.data());
      }
  }

  /// A block of y's features, [count][block.out].
  template <class Sum>
  [[nodiscard]] Sums<Sum> sum(const std::vector<Product>& products) const {
    const auto out = static_cast<std::size_t>(problem_.block.out);
    const std::size_t in = block_in();
    const auto taps = static_cast<std::size_t>(problem_.taps());
    Sums<Sum> sums{std::vector<Sum>(count_ * out), std::vector<double>(count_ * out)};
    std::vector<double> block(out * in);
    std::vector<double> w(out * in);
    for (const Product& product : products) {
      if (!read_block(problem_, operands_, product.block, block)) continue;
      const std::size_t first = static_cast<std::size_t>(product.of_x) * in;
      const std::size_t there = static_cast<std::size_t>(problem_.in_features()) - first;
      for (std::size_t c = 0; c < in; ++c)
        for (std::size_t o = 0; o < out; ++o)
          w[c * out + o] = c >= there ? 0 : problem_.by_columns() ? block[c * out + o] : block[o * in + c];
      for (std::size_t row = 0; row < count_; ++row) {
        const double* const x = x_[row * taps + static_cast<std::size_t>(product.tap)];
        if (x == nullptr) continue;
        add(x + first, w.data(), in, out, sums.y.data() + row * out, sums.magnitude.data() + row * out);
      }
    }
    return sums;
  }

 private:
  [[nodiscard]] std::size_t block_in() const { return static_cast<std::size_t>(problem_.block.in); }

  const Spmm& problem_;
  const HostOperands& operands_;
  std::size_t count_;
  std::map<std::int64_t, std::vector<double>> rows_;  ///< of x, by number
  std::vector<const double*> x_;                      ///< [count][taps]; null: outside
};

/// Calls work(block of y's features) for each, on as many threads as pay.
void for_each_block(std::int32_t blocks, double flops, const std::function<void(std::int32_t)>& work) {
  const double most = std::min<double>(std::max(1u, std::thread::hardware_concurrency()), blocks);
  const auto threads = static_cast<std::size_t>(std::clamp(flops / 4e6, 1.0, std::max(1.0, most)));
  std::atomic<std::int32_t> next = 0;
  in_parallel(threads, [&](std::size_t) {
    for (std::int32_t block = next++; block < blocks; block = next++) work(block);
  });
}

template <class Sum>
Reference summed(const Spmm& problem, const HostOperands& operands, std::int64_t first, std::int64_t count,
                 bool with_magnitude) {
  const auto out = static_cast<std::size_t>(problem.block.out);
  const auto width = static_cast<std::size_t>(problem.out_features());
  const std::size_t size = static_cast<std::size_t>(count) * width;
  Reference result{std::vector<double>(size), std::vector<double>(with_magnitude ? size : 0)};
  const std::vector<std::vector<Product>> products = products_of(problem);
  for (std::int64_t done = 0; done < count; done += kRows) {
    const std::int64_t now = std::min(kRows, count - done);
    const Rows rows(problem, operands, first + done, now);
    const double flops =
        2.0 * static_cast<double>(problem.weight.blocks() * now) * problem.block.out * problem.block.in;
    // Each block of features is summed by one thread in the same order, so the result does not depend on the
    // number of threads.
    for_each_block(static_cast<std::int32_t>(products.size()), flops, [&](std::int32_t block) {
      const Sums<Sum> sums = rows.sum<Sum>(products[static_cast<std::size_t>(block)]);
      const std::size_t there = std::min(out, width - static_cast<std::size_t>(block) * out);
      const auto place = [&](std::vector<double>& to, std::size_t row) {
        return to.begin() + static_cast<std::ptrdiff_t>((static_cast<std::size_t>(done) + row) * width +
                                                        static_cast<std::size_t>(block) * out);
      };
      for (std::size_t row = 0; row < static_cast<std::size_t>(now); ++row) {
        const auto at = static_cast<std::ptrdiff_t>(row * out);
        std::transform(sums.y.begin() + at, sums.y.begin() + at + static_cast<std::ptrdiff_t>(there),
                       place(result.y, row), [](Sum sum) { return static_cast<double>(sum); });
        if (with_magnitude) std::copy_n(sums.magnitude.begin() + at, there, place(result.magnitude, row));
      }
    });
  }
  return result;
}

}  // namespace

Reference convolution_reference(const Spmm& problem, const HostOperands& operands, std::int64_t first,
                                std::int64_t count, bool with_magnitude) {
  return problem.sum_type() == DType::f64
             ? summed<long double>(problem, operands, first, count, with_magnitude)
             : summed<double>(problem, operands, first, count, with_magnitude);
}

std::int64_t row_read(const Convolution& convolution, Operation operation, std::int64_t row,
                      std::int32_t tap) {
  return Reads(convolution, operation).row(row, tap);
}

}  // namespace sparsekiln
