#include "oracle/sddmm_check.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "compiler/activation.h"
#include "compiler/element.h"
#include "oracle/convolution_reference.h"
#include "oracle/reference_epilogue.h"

namespace sparsekiln {
namespace {

/// Batch rows that are widened at once: their x and dy must stay in the cache.
constexpr std::int64_t kBatchRows = 32;

std::int64_t whole_in(const Sddmm& gradient) {
  return std::int64_t{gradient.layout.cols()} * gradient.block.in;
}
std::int64_t whole_out(const Sddmm& gradient) {
  return std::int64_t{gradient.layout.rows()} * gradient.block.out;
}

/// Up to kBatchRows batch rows of one pair in float64, [entry][feature], of whole blocks: zeros beyond a cut.
struct WidenedRows {
  std::int64_t count = 0;
  std::vector<double> x;         ///< as the math takes it
  std::vector<double> dy;        ///< the same of dy
  std::vector<double> whole_dy;  ///< not rounded to tf32
};

class Reader {
 public:
  Reader(const Sddmm& gradient, const SddmmInputs& inputs) : gradient_(gradient), inputs_(inputs) {}

  [[nodiscard]] WidenedRows read(std::size_t pair, std::int64_t first) const {
    const SddmmInputs::Pair& from = inputs_.pairs[pair];
    WidenedRows rows;
    rows.count = std::min(kBatchRows, gradient_.dy_rows(inputs_.n) - first);
    rows.x = gradient_.convolution.present()
                 ? displaced(from.x, first, rows.count)
                 : widen(from.x, first, rows.count, {gradient_.in_features(), whole_in(gradient_)},
                         inputs_.x_stride);
    const Width out{gradient_.out_features(), whole_out(gradient_)};
    rows.dy = widen(from.dy, first, rows.count, out, inputs_.dy_stride);
    if (gradient_.derivative != Activation::none) {
      const std::vector<double> z = widen(from.z, first, rows.count, out, inputs_.dy_stride);
      const auto derivative = row_of(gradient_.derivative).derivative;
      for (std::size_t i = 0; i < z.size(); ++i)
        rows.dy[i] = rounded(rows.dy[i] * derivative(z[i]), gradient_.dtype);
    }
    rows.whole_dy = rows.dy;
    if (gradient_.math == Math::tf32) {
      round(rows.x);
      round(rows.dy);
    }
    return rows;
  }

 private:
  struct Width {
    std::int64_t features;
    std::int64_t whole;
  };
  [[nodiscard]] std::vector<double> widen(const std::vector<std::byte>& data, std::int64_t first,
                                          std::int64_t count, Width width, std::int64_t stride) const {
    std::vector<double> result(static_cast<std::size_t>(count * width.whole));
    for (std::int64_t n = 0; n < count; ++n)
      for (std::int64_t f = 0; f < width.features; ++f)
        result[static_cast<std::size_t>(n * width.whole + f)] =
            to_double(gradient_.dtype, data.data(),
                      gradient_.feature_major() ? f * stride + first + n : (first + n) * stride + f);
    return result;
  }
  /// The x that each tap of a convolution multiplies for rows of dy, where columns are a block of features
  /// and a tap; 0 outside.
  [[nodiscard]] std::vector<double> displaced(const std::vector<std::byte>& data, std::int64_t first,
                                              std::int64_t count) const {
    const std::int64_t whole = whole_in(gradient_);
    const std::int32_t taps = gradient_.taps();
    const std::int64_t side = gradient_.block.in;
    std::vector<double> result(static_cast<std::size_t>(count * whole));
    for (std::int64_t n = 0; n < count; ++n)
      for (std::int32_t tap = 0; tap < taps; ++tap) {
        const std::int64_t row = row_read(gradient_.convolution, Operation::forward, first + n, tap);
        if (row < 0) continue;
        for (std::int64_t f = 0; f < gradient_.in_features(); ++f)
          result[static_cast<std::size_t>(n * whole + (f / side * taps + tap) * side + f % side)] =
              to_double(gradient_.dtype, data.data(), row * inputs_.x_stride + f);
      }
    return result;
  }
  static void round(std::vector<double>& values) {
    for (double& value : values) value = rounded_to_tf32(static_cast<float>(value));
  }

  const Sddmm& gradient_;
  const SddmmInputs& inputs_;
};

/// dw and dbias while they are summed: in float64, of float64 operands in `long double`.
template <class Sum>
struct Sums {
  std::vector<Sum> dw;
  std::vector<Sum> dbias;
};

/// Adds the products of some batch rows to one block.
template <class Sum>
void add_block(const WidenedRows& rows, BlockShape block, const double* dy, std::int64_t dy_stride,
               const double* x, std::int64_t x_stride, Sum* sum, double* magnitude) {
  for (std::int64_t n = 0; n < rows.count; ++n, dy += dy_stride, x += x_stride)
    for (std::int32_t o = 0; o < block.out; ++o) {
      const Sum scale = dy[o];
      Sum* const sums = sum + o * block.in;
      double* const magnitudes = magnitude + o * block.in;
      for (std::int32_t i = 0; i < block.in; ++i) {
        sums[i] += scale * x[i];
        magnitudes[i] += std::fabs(dy[o] * x[i]);
      }
    }
}

template <class Sum>
void add_row(const Sddmm& gradient, const WidenedRows& rows, std::int32_t row, Sums<Sum>& sums,
             SddmmReference& result) {
  const auto [out, in] = gradient.block;
  const std::int64_t dy_stride = whole_out(gradient);
  const std::int64_t first_out = std::int64_t{row} * out;
  std::int64_t block = gradient.layout.crow()[static_cast<std::size_t>(row)];
  for (const std::int32_t col : gradient.layout.row(row)) {
    const std::int64_t at = block++ * gradient.block_elements();
    add_block(rows, gradient.block, rows.dy.data() + first_out, dy_stride,
              rows.x.data() + std::int64_t{col} * in, whole_in(gradient), sums.dw.data() + at,
              result.of_dw.data() + at);
  }
  if (!gradient.bias_gradient) return;
  for (std::int64_t n = 0; n < rows.count; ++n)
    for (std::int64_t o = first_out; o < std::min(first_out + out, gradient.out_features()); ++o) {
      const double value = rows.whole_dy[static_cast<std::size_t>(n * dy_stride + o)];
      sums.dbias[static_cast<std::size_t>(o)] += value;
      result.of_dbias[static_cast<std::size_t>(o)] += std::fabs(value);
    }
}

void for_each_row(const Sddmm& gradient, double worth, const std::function<void(std::int32_t)>& work) {
  const double most =
      std::min<double>(std::max(1u, std::thread::hardware_concurrency()), gradient.layout.rows());
  const auto threads = static_cast<std::size_t>(std::clamp(worth, 1.0, std::max(1.0, most)));
  std::atomic<std::int32_t> next = 0;
  const auto take = [&] {
    for (std::int32_t row = next++; row < gradient.layout.rows(); row = next++) work(row);
  };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(take);
  take();
}

/// Calls use(block, element, exists) for every element of dw; beyond a cut none exists.
template <class Use>
void for_each_element(const Sddmm& gradient, Use use) {
  std::int64_t block = 0;
  std::int64_t element = 0;
  for (std::int32_t row = 0; row < gradient.layout.rows(); ++row)
    for (const std::int32_t col : gradient.layout.row(row)) {
      for (std::int32_t o = 0; o < gradient.block.out; ++o)
        for (std::int32_t i = 0; i < gradient.block.in; ++i, ++element)
          use(block, element,
              std::int64_t{row} * gradient.block.out + o < gradient.out_features() &&
                  std::int64_t{col / gradient.taps()} * gradient.block.in + i < gradient.in_features());
      ++block;
    }
}

void sum_gates(const Sddmm& gradient, const SddmmInputs& inputs, SddmmReference& result) {
  result.dgates.assign(static_cast<std::size_t>(gradient.layout.blocks()), 0);
  result.of_dgates = result.dgates;
  for_each_element(gradient, [&](std::int64_t block, std::int64_t element, bool exists) {
    if (!exists) return;
    const double w = to_double(gradient.dtype, inputs.w.data(), element);
    const auto i = static_cast<std::size_t>(element);
    result.dgates[static_cast<std::size_t>(block)] += w * result.dw[i];
    result.of_dgates[static_cast<std::size_t>(block)] += std::fabs(w) * result.of_dw[i];
  });
}

/// What dw held before, as it counts: beyond a cut nothing does.
std::vector<std::byte> old_within(const Sddmm& gradient, const SddmmInputs& inputs) {
  std::vector<std::byte> old = inputs.old_dw;
  if (old.empty()) return old;
  for_each_element(gradient, [&](std::int64_t, std::int64_t element, bool exists) {
    if (!exists) store(gradient.out_dtype, 0, old.data(), element);
  });
  return old;
}

double likely_roundings(double k) { return std::min(k, 10 * std::sqrt(k)); }

/// How far a sum may be off: by so many roundings of its magnitude, and absolutely.
struct Tolerance {
  double roundings = 0;
  double absolute = 0;
};

/// Compares one result with scale·sum + beta·old.
class Judge {
 public:
  /// `u`: what one operation on sums may err by.
  Judge(const SddmmInputs& inputs, double u, bool exact, CheckResult& check_result)
      : inputs_(inputs), u_(u), exact_(exact), check_result_(check_result) {}

  /// `scale(i)`: of element i.
  template <class Scale>
  void compare(const PoisonedOutput& output, std::string_view name, const std::vector<double>& sum,
               const std::vector<double>& magnitude, Tolerance tolerance, const std::vector<std::byte>& old,
               Scale scale) {
    const double u_out = element_format(output.dtype()).unit_roundoff;
    const double smallest = element_format(output.dtype()).smallest_normal;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const double s = scale(i);
      const double before =
          old.empty() ? 0
                      : inputs_.beta * to_double(output.dtype(), old.data(), static_cast<std::int64_t>(i));
      const double value = to_double(output.dtype(), output.y(), static_cast<std::int64_t>(i));
      const double want = s * sum[i] + before;
      const double of_sum = u_ * tolerance.roundings * magnitude[i] + tolerance.absolute;
      const double bound = std::fabs(s) * of_sum + 4 * u_ * (std::fabs(s * sum[i]) + std::fabs(before)) +
                           u_out * std::max(std::fabs(value), smallest);
      // A sum of nothing may come out with either sign of zero, as products with gates of zero do.
      const double ratio = !exact_                   ? error_ratio(value, want, bound)
                           : want == 0 && value == 0 ? 0
                                                     : exact_ratio(value, rounded(want, output.dtype()));
      check_result_.max_error_ratio = std::max(check_result_.max_error_ratio, ratio);
      if (ratio > 1 && check_result_.wrong++ == 0)
        check_result_.first_failure = fmt::format(
            "{}: element {} is {}, expected {}{}: off by {:.3g}, allowed {:.3g}", name, place(output, i),
            value, exact_ ? "exactly " : "", want, std::fabs(value - want), exact_ ? 0 : bound);
      if (!std::isfinite(want)) continue;
      error2_ += (value - want) * (value - want);
      norm2_ += want * want;
    }
    inspect(output);
  }
  void conclude() {
    check_result_.rel_error = error2_ == 0 ? 0 : std::sqrt(error2_ / norm2_);
    check_result_.ok = check_result_.wrong == 0 && check_result_.unwritten == 0 && check_result_.stray == 0;
  }

 private:
  static std::string place(const PoisonedOutput& output, std::size_t i) {
    const auto at = static_cast<std::int64_t>(i);
    return fmt::format("[{}, {}]", at / output.width(), at % output.width());
  }
  void inspect(const PoisonedOutput& output) {
    const PoisonedOutput::Findings findings = output.inspect();
    if (check_result_.unwritten + check_result_.stray == 0 && !findings.first.empty())
      check_result_.first_failure = findings.first;
    check_result_.unwritten += findings.unwritten;
    check_result_.stray += findings.stray;
  }

  const SddmmInputs& inputs_;
  double u_;
  bool exact_;
  CheckResult& check_result_;
  double error2_ = 0;
  double norm2_ = 0;
};

}  // namespace

namespace {

template <class Sum>
SddmmReference summed(const Sddmm& gradient, const SddmmInputs& inputs) {
  const auto elements = static_cast<std::size_t>(gradient.layout.blocks() * gradient.block_elements());
  const auto outputs = static_cast<std::size_t>(gradient.bias_gradient ? gradient.out_features() : 0);
  SddmmReference result;
  result.of_dw.resize(elements);
  result.of_dbias.resize(outputs);
  Sums<Sum> sums{std::vector<Sum>(elements), std::vector<Sum>(outputs)};
  const Reader reader(gradient, inputs);
  for (std::size_t pair = 0; pair < inputs.pairs.size(); ++pair)
    for (std::int64_t first = 0; first < gradient.dy_rows(inputs.n); first += kBatchRows) {
      const WidenedRows rows = reader.read(pair, first);
      const double worth = static_cast<double>(elements) * static_cast<double>(rows.count) / 2e6;
      for_each_row(gradient, worth, [&](std::int32_t row) { add_row(gradient, rows, row, sums, result); });
    }
  const auto in_float64 = [](const std::vector<Sum>& from, std::vector<double>& to) {
    to.resize(from.size());
    std::transform(from.begin(), from.end(), to.begin(), [](Sum sum) { return static_cast<double>(sum); });
  };
  in_float64(sums.dw, result.dw);
  in_float64(sums.dbias, result.dbias);
  if (gradient.gate_gradient) sum_gates(gradient, inputs, result);
  return result;
}

}  // namespace

SddmmReference reference(const Sddmm& gradient, const SddmmInputs& inputs) {
  return gradient.sum_type() == DType::f64 ? summed<long double>(gradient, inputs)
                                           : summed<double>(gradient, inputs);
}

CheckResult check(const Sddmm& gradient, const SddmmInputs& inputs, const SddmmOutputs& outputs,
                  Adder adder) {
  return check(gradient, inputs, reference(gradient, inputs), outputs, adder);
}

CheckResult check(const Sddmm& gradient, const SddmmInputs& inputs, const SddmmReference& want,
                  const SddmmOutputs& outputs, Adder adder) {
  const double alpha = inputs.alpha;
  const auto elements = static_cast<std::size_t>(gradient.block_elements());
  const auto k =
      static_cast<double>(gradient.dy_rows(inputs.n) * static_cast<std::int64_t>(inputs.pairs.size()));
  // A dy that was multiplied by a derivative may be off by its error, and fall on the other side of a
  // rounding; with it goes an x.
  const bool integers = inputs.kind == Inputs::small_integers;
  const double off = derivative_error(gradient.derivative, gradient.sum_type());
  constexpr double kTf32 = 0x1p-11;
  const double taken =
      gradient.math == Math::tf32 ? kTf32 : element_format(gradient.dtype).unit_roundoff;  // by products
  const double of_dy = off == 0 ? 0 : off + 2 * taken;
  const double absolute = likely_roundings(k) * (integers ? 64 : 1) * of_dy;
  const Tolerance of_sum{loss(adder) * likely_roundings(k), absolute};
  const auto e = static_cast<double>(elements);
  const Tolerance of_gate{of_sum.roundings + likely_roundings(e), e * absolute};
  const auto constant = [&](std::size_t) { return alpha; };
  CheckResult check_result;
  Judge judge(inputs, error_of_operation(gradient.sum_type()), integers && off == 0, check_result);
  judge.compare(
      outputs.dw, "dw", want.dw, want.of_dw, of_sum, old_within(gradient, inputs), [&](std::size_t i) {
        if (!gradient.gates) return alpha;
        return alpha *
               to_double(gradient.sum_type(), inputs.gates.data(), static_cast<std::int64_t>(i / elements));
      });
  judge.compare(outputs.dbias, "dbias", want.dbias, want.of_dbias, of_sum, inputs.old_dbias, constant);
  judge.compare(outputs.dgates, "dgates", want.dgates, want.of_dgates, of_gate, inputs.old_dgates, constant);
  judge.conclude();
  return check_result;
}

}  // namespace sparsekiln
