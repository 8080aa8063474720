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
#include "system/parallel.h"

namespace sparsekiln {
namespace {

/// Batch rows that are widened at once: their x and dy must stay in the cache.
constexpr std::int64_t kBatchRows = 32;

std::int64_t whole_cols(const Sddmm& gradient) {
  return std::int64_t{gradient.layout.cols()} * gradient.block.in;
}
std::int64_t whole_rows(const Sddmm& gradient) {
  return std::int64_t{gradient.layout.rows()} * gradient.block.out;
}

/// Up to kBatchRows batch rows of one pair in float64, as the math takes them, [entry][feature], of whole
/// blocks: zeros beyond a cut. The columns of dw are of x's features and its rows of dy's; of a transposed
/// convolution the other way round.
struct WidenedRows {
  std::int64_t count = 0;
  std::vector<double> of_cols;
  std::vector<double> of_rows;
};

class Reader {
 public:
  Reader(const Sddmm& gradient, const SddmmInputs& inputs) : gradient_(gradient), inputs_(inputs) {}

  [[nodiscard]] WidenedRows read(std::size_t pair, std::int64_t first) const {
    const SddmmInputs::Pair& from = inputs_.pairs[pair];
    const bool x_has_rows = gradient_.convolution.transposed;
    WidenedRows rows;
    rows.count = std::min(kBatchRows, gradient_.product_rows(inputs_.n) - first);
    rows.of_cols = gradient_.convolution.present() ? displaced(from, !x_has_rows, first, rows.count)
                                                   : widen(from, true, first, rows.count);
    rows.of_rows = widen(from, x_has_rows, first, rows.count);
    if (gradient_.math == Math::tf32) {
      round(rows.of_cols);
      round(rows.of_rows);
    }
    return rows;
  }

  /// One element of dy, times the derivative.
  [[nodiscard]] double dy(const SddmmInputs::Pair& pair, std::int64_t row, std::int64_t feature) const {
    return element(pair, false, row, feature);
  }

 private:
  /// An element of x, or of dy times the derivative.
  [[nodiscard]] double element(const SddmmInputs::Pair& pair, bool of_x, std::int64_t row,
                               std::int64_t feature) const {
    const std::int64_t stride = of_x ? inputs_.x_stride : inputs_.dy_stride;
    const std::int64_t at = gradient_.channels_first()
                                ? offset_in_images(row, feature, stride,
                                                   of_x ? gradient_.convolution.input_positions()
                                                        : gradient_.convolution.output_positions())
                            : gradient_.feature_major() ? feature * stride + row
                                                        : row * stride + feature;
    const double value = to_double(gradient_.dtype, (of_x ? pair.x : pair.dy).data(), at);
    if (of_x || gradient_.derivative == Activation::none) return value;
    const double slope =
        row_of(gradient_.derivative).derivative(to_double(gradient_.dtype, pair.z.data(), at));
    return rounded(value * slope, gradient_.dtype);
  }
  /// Rows of x, or of dy, side by side with zeros up to whole blocks.
  [[nodiscard]] std::vector<double> widen(const SddmmInputs::Pair& pair, bool of_x, std::int64_t first,
                                          std::int64_t count) const {
    const std::int64_t features = of_x ? gradient_.in_features() : gradient_.out_features();
    const std::int64_t whole =
        of_x != gradient_.convolution.transposed ? whole_cols(gradient_) : whole_rows(gradient_);
    std::vector<double> result(static_cast<std::size_t>(count * whole));
    for (std::int64_t n = 0; n < count; ++n)
      for (std::int64_t f = 0; f < features; ++f)
        result[static_cast<std::size_t>(n * whole + f)] = element(pair, of_x, first + n, f);
    return result;
  }
  /// What each tap of a convolution multiplies for rows of the other operand, where columns are a block of
  /// features and a tap; 0 outside.
  [[nodiscard]] std::vector<double> displaced(const SddmmInputs::Pair& pair, bool of_x, std::int64_t first,
                                              std::int64_t count) const {
    const std::int64_t whole = whole_cols(gradient_);
    const std::int32_t taps = gradient_.taps();
    const std::int64_t side = gradient_.block.in;
    const std::int64_t features = of_x ? gradient_.in_features() : gradient_.out_features();
    std::vector<double> result(static_cast<std::size_t>(count * whole));
    for (std::int64_t n = 0; n < count; ++n)
      for (std::int32_t tap = 0; tap < taps; ++tap) {
        const std::int64_t row = row_read(gradient_.convolution,
                                          of_x ? Operation::forward : Operation::grad_input, first + n, tap);
        if (row < 0) continue;
        for (std::int64_t f = 0; f < features; ++f)
          result[static_cast<std::size_t>(n * whole + (f / side * taps + tap) * side + f % side)] =
              element(pair, of_x, row, f);
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
void add_block(const WidenedRows& rows, BlockShape block, const double* of_row, std::int64_t row_stride,
               const double* of_col, std::int64_t col_stride, Sum* sum, double* magnitude) {
  for (std::int64_t n = 0; n < rows.count; ++n, of_row += row_stride, of_col += col_stride)
    for (std::int32_t o = 0; o < block.out; ++o) {
      const Sum scale = of_row[o];
      Sum* const sums = sum + o * block.in;
      double* const magnitudes = magnitude + o * block.in;
      for (std::int32_t i = 0; i < block.in; ++i) {
        sums[i] += scale * of_col[i];
        magnitudes[i] += std::fabs(of_row[o] * of_col[i]);
      }
    }
}

template <class Sum>
void add_row(const Sddmm& gradient, const WidenedRows& rows, std::int32_t row, Sums<Sum>& sums,
             SddmmReference& result) {
  const auto [out, in] = gradient.block;
  const std::int64_t first_out = std::int64_t{row} * out;
  std::int64_t block = gradient.layout.crow()[static_cast<std::size_t>(row)];
  for (const std::int32_t col : gradient.layout.row(row)) {
    const std::int64_t at = block++ * gradient.block_elements();
    add_block(rows, gradient.block, rows.of_rows.data() + first_out, whole_rows(gradient),
              rows.of_cols.data() + std::int64_t{col} * in, whole_cols(gradient), sums.dw.data() + at,
              result.of_dw.data() + at);
  }
}

template <class Sum>
void add_bias(const Sddmm& gradient, const SddmmInputs& inputs, const Reader& reader, Sums<Sum>& sums,
              SddmmReference& result) {
  for (const SddmmInputs::Pair& pair : inputs.pairs)
    for (std::int64_t row = 0; row < gradient.dy_rows(inputs.n); ++row)
      for (std::int64_t o = 0; o < gradient.out_features(); ++o) {
        const double value = reader.dy(pair, row, o);
        sums.dbias[static_cast<std::size_t>(o)] += value;
        result.of_dbias[static_cast<std::size_t>(o)] += std::fabs(value);
      }
}

void for_each_row(const Sddmm& gradient, double worth, const std::function<void(std::int32_t)>& work) {
  const double most =
      std::min<double>(std::max(1u, std::thread::hardware_concurrency()), gradient.layout.rows());
  const auto threads = static_cast<std::size_t>(std::clamp(worth, 1.0, std::max(1.0, most)));
  std::atomic<std::int32_t> next = 0;
  in_parallel(threads, [&](std::size_t) {
    for (std::int32_t row = next++; row < gradient.layout.rows(); row = next++) work(row);
  });
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
              std::int64_t{row} * gradient.block.out + o < gradient.row_features() &&
                  std::int64_t{col / gradient.taps()} * gradient.block.in + i < gradient.col_features());
      ++block;
    }
}

void sum_block_scales(const Sddmm& gradient, const SddmmInputs& inputs, SddmmReference& result) {
  result.dblock_scales.assign(static_cast<std::size_t>(gradient.block_scale_map.count()), 0);
  result.of_dblock_scales = result.dblock_scales;
  for_each_element(gradient, [&](std::int64_t block, std::int64_t element, bool exists) {
    if (!exists) return;
    const double w = to_double(gradient.dtype, inputs.w.data(), element);
    const auto i = static_cast<std::size_t>(element);
    const auto block_scale =
        static_cast<std::size_t>(gradient.block_scale_map.of(static_cast<std::int32_t>(block)));
    result.dblock_scales[block_scale] += w * result.dw[i];
    result.of_dblock_scales[block_scale] += std::fabs(w) * result.of_dw[i];
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
      // A sum of nothing may come out with either sign of zero, as products with block scales of zero do.
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
    for (std::int64_t first = 0; first < gradient.product_rows(inputs.n); first += kBatchRows) {
      const WidenedRows rows = reader.read(pair, first);
      const double worth = static_cast<double>(elements) * static_cast<double>(rows.count) / 2e6;
      for_each_row(gradient, worth, [&](std::int32_t row) { add_row(gradient, rows, row, sums, result); });
    }
  if (gradient.bias_gradient) add_bias(gradient, inputs, reader, sums, result);
  const auto in_float64 = [](const std::vector<Sum>& from, std::vector<double>& to) {
    to.resize(from.size());
    std::transform(from.begin(), from.end(), to.begin(), [](Sum sum) { return static_cast<double>(sum); });
  };
  in_float64(sums.dw, result.dw);
  in_float64(sums.dbias, result.dbias);
  if (gradient.block_scale_gradient) sum_block_scales(gradient, inputs, result);
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
  const auto pairs = static_cast<double>(inputs.pairs.size());
  const double k = static_cast<double>(gradient.product_rows(inputs.n)) * pairs;
  const double of_bias = static_cast<double>(gradient.dy_rows(inputs.n)) * pairs;
  // A dy that was multiplied by a derivative may be off by its error, and fall on the other side of a
  // rounding; with it goes an x.
  const bool integers = inputs.kind == Inputs::small_integers;
  const double off = derivative_error(gradient.derivative, gradient.sum_type());
  constexpr double kTf32 = 0x1p-11;
  const double taken =
      gradient.math == Math::tf32 ? kTf32 : element_format(gradient.dtype).unit_roundoff;  // by products
  const double of_dy = off == 0 ? 0 : off + 2 * taken;
  const auto tolerance = [&](double products) {
    return Tolerance{loss(adder) * likely_roundings(products),
                     likely_roundings(products) * (integers ? 64 : 1) * of_dy};
  };
  const Tolerance of_sum = tolerance(k);
  const auto e = static_cast<double>(elements) * gradient.taps();  // that a block scale multiplies, at most
  const Tolerance of_block_scale{of_sum.roundings + likely_roundings(e), e * of_sum.absolute};
  const auto constant = [&](std::size_t) { return alpha; };
  CheckResult check_result;
  Judge judge(inputs, error_of_operation(gradient.sum_type()), integers && off == 0, check_result);
  judge.compare(
      outputs.dw, "dw", want.dw, want.of_dw, of_sum, old_within(gradient, inputs), [&](std::size_t i) {
        if (!gradient.block_scales) return alpha;
        return alpha * to_double(gradient.sum_type(), inputs.block_scales.data(),
                                 gradient.block_scale_map.of(static_cast<std::int32_t>(i / elements)));
      });
  judge.compare(outputs.dbias, "dbias", want.dbias, want.of_dbias, tolerance(of_bias), inputs.old_dbias,
                constant);
  judge.compare(outputs.dblock_scales, "dblock_scales", want.dblock_scales, want.of_dblock_scales,
                of_block_scale, inputs.old_dblock_scales, constant);
  judge.conclude();
  return check_result;
}

}  // namespace sparsekiln
