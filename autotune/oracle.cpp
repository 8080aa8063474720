#include "autotune/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <sparsekiln/error.h>

#include "autotune/reference.h"
#include "compiler/element.h"

namespace sparsekiln {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// How far an element of one block row may be off, as factors of its magnitude and of itself.
struct Tolerance {
  double of_magnitude;
  double of_value;
};

/// How many roundings of one sum are as bad as what the adder does to it, see oracle.h.
double loss(Adder adder) {
  constexpr double kProductsAtOnce = 4;
  return adder == Adder::tensor_cores ? 2 * (kProductsAtOnce + 1) / kProductsAtOnce : 1;
}

Tolerance tolerance(const Spmm& problem, std::int64_t row, Inputs kind, Adder adder) {
  const double u_out = element_format(problem.out_dtype).unit_roundoff;
  // Neighbours are never closer than u_out·|y|, so half of it lets nothing but equality pass.
  if (kind == Inputs::small_integers) return {0, u_out / 2};
  const auto blocks = problem.layout.row(static_cast<std::int32_t>(row)).size();
  const double k = static_cast<double>(blocks) * problem.block.in;
  const double u = element_format(DType::f32).unit_roundoff;
  return {loss(adder) * std::min(k, 10 * std::sqrt(k)) * u, u_out};
}

/// |error| / bound; no bound is met by a NaN or Inf that the reference does not have.
double error_ratio(double y, double expected, double bound) {
  if (std::isnan(expected)) return std::isnan(y) ? 0 : kInf;
  if (y == expected) return 0;
  const double error = std::fabs(y - expected);
  return std::isfinite(error) && bound > 0 ? error / bound : kInf;
}

/// The exact sum as the output type holds it.
double rounded(double exact, DType type) {
  float value = 0;
  store(type, static_cast<float>(exact), &value, 0);
  return to_float(type, &value, 0);
}

class Judge {
 public:
  Judge(const Spmm& problem, const HostInputs& inputs, const PoisonedOutput& output, Adder adder)
      : problem_(problem), inputs_(inputs), output_(output), row_(static_cast<std::size_t>(output.width())) {
    for (std::int32_t row = 0; row < problem.layout.rows(); ++row)
      tolerance_.push_back(tolerance(problem, row, inputs.kind, adder));
  }

  /// Compares batch entry n with entry `at` of `expected`.
  void compare(std::int64_t n, const Reference& expected, std::int64_t at, Verdict& verdict) {
    to_float(output_.dtype(), output_.y(), n * output_.row_stride(), row_);
    const bool exact = inputs_.kind == Inputs::small_integers;
    const double* want_row = expected.y.data() + at * output_.width();
    const double* magnitude = exact ? nullptr : expected.magnitude.data() + at * output_.width();
    for (std::int64_t o = 0; o < output_.width(); ++o) {
      const double got = row_[static_cast<std::size_t>(o)];
      const double want = exact ? rounded(want_row[o], output_.dtype()) : want_row[o];
      const Tolerance& limit = tolerance_[static_cast<std::size_t>(o / problem_.block.out)];
      const double bound = limit.of_value * std::fabs(got) + (exact ? 0 : limit.of_magnitude * magnitude[o]);
      double ratio = error_ratio(got, want, bound);
      if (exact && ratio == 0 && std::signbit(got) != std::signbit(want) && !std::isnan(want)) ratio = kInf;
      verdict.max_error_ratio = std::max(verdict.max_error_ratio, ratio);
      if (ratio > 1 && verdict.wrong++ == 0)
        first_wrong_ = fmt::format(
            "y[{}, {}] is {}, expected {}{}: off by {:.3g}, allowed {:.3g} (block row {}, {} blocks)", n, o,
            got, exact ? "exactly " : "", want, std::fabs(got - want), exact ? 0 : bound,
            o / problem_.block.out,
            problem_.layout.row(static_cast<std::int32_t>(o / problem_.block.out)).size());
      if (std::isfinite(want)) {
        error2_ += (got - want) * (got - want);
        norm2_ += want * want;
      }
    }
  }

  void conclude(Verdict& verdict) const {
    const PoisonedOutput::Findings findings = output_.inspect();
    verdict.unwritten = findings.unwritten;
    verdict.stray = findings.stray;
    verdict.rel_error = error2_ == 0 ? 0 : std::sqrt(error2_ / norm2_);
    verdict.ok = verdict.wrong == 0 && findings.unwritten == 0 && findings.stray == 0;
    verdict.first_failure = findings.first.empty() ? first_wrong_ : findings.first;
  }

 private:
  const Spmm& problem_;
  const HostInputs& inputs_;
  const PoisonedOutput& output_;
  std::vector<float> row_;
  std::vector<Tolerance> tolerance_;
  double error2_ = 0;
  double norm2_ = 0;
  std::string first_wrong_;
};

}  // namespace

Adder adder_of(const Spmm& problem, const Plan& plan) {
  const bool tensor_cores =
      !problem.ieee() && std::any_of(plan.begin(), plan.end(), [](const RangedConfig& range) {
        return range.config.variant == Variant::mma || range.config.variant == Variant::stream;
      });
  return tensor_cores ? Adder::tensor_cores : Adder::float32;
}

Verdict check(const Spmm& problem, const HostInputs& inputs, const PoisonedOutput& output, Adder adder) {
  if (problem.order != ActivationOrder::batch_major)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("the oracle was asked for {} activations; it knows {}", name(problem.order),
                            name(ActivationOrder::batch_major)));
  if (output.n() != inputs.n || output.width() != problem.out_features() ||
      output.dtype() != problem.out_dtype)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("y is [{}, {}] {}, but the problem with n = {} makes [{}, {}] {}", output.n(),
                            output.width(), name(output.dtype()), inputs.n, inputs.n, problem.out_features(),
                            name(problem.out_dtype)));
  constexpr std::int64_t kBatch = 256;  // bounds the memory that the reference takes
  Verdict verdict;
  Judge judge(problem, inputs, output, adder);
  for (std::int64_t first = 0; first < inputs.n; first += kBatch) {
    const std::int64_t count = std::min(kBatch, inputs.n - first);
    const Reference expected =
        reference(problem, inputs.operands(), first, count, inputs.kind == Inputs::random);
    for (std::int64_t n = 0; n < count; ++n) judge.compare(first + n, expected, n, verdict);
  }
  judge.conclude(verdict);
  return verdict;
}

}  // namespace sparsekiln
