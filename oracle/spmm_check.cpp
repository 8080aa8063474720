#include "oracle/spmm_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include <sparsekiln/error.h>

#include "compiler/element.h"
#include "compiler/operand_table.h"
#include "oracle/bounded_arithmetic.h"
#include "oracle/cell_reference.h"
#include "oracle/edge_reference.h"
#include "oracle/normalise_reference.h"
#include "oracle/reference_epilogue.h"

namespace sparsekiln {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// How far a sum of one block row may be off, as a factor of its magnitude and absolutely.
struct Tolerance {
  double of_magnitude;
  double absolute;
};

/// The most blocks that an element of a block of y's features sums, each tap counted: an element of a
/// convolution belongs to a class.
std::size_t most_blocks(const Spmm& problem, std::int64_t of_y) {
  std::size_t most = 0;
  for (auto row = static_cast<std::int32_t>(of_y); row < problem.layout.rows(); row += problem.out_blocks())
    most = std::max(most, problem.layout.row(row).size());
  return most;
}

/// What instructions of tensor cores lose more than spmm_check.h says of others: of each product of random
/// 8-bit floats, which are 1 at most, and relative to their sum.
double lost_by_instructions(DType dtype, Adder adder) {
  if (!is_float8(dtype) || adder == Adder::float32) return 0;
  return adder == Adder::tensor_cores ? 0x1p-13 : 0x1p-10;
}

Tolerance tolerance(const Spmm& problem, std::int64_t row, Inputs kind, Adder adder) {
  const double k = static_cast<double>(most_blocks(problem, row)) * problem.block.in;
  const double roundings = roundings_of(k);
  const double u = error_of_operation(problem.sum_type());
  // An x that was multiplied by a derivative may be off by that error and fall on the other side of a
  // rounding; with it goes a w.
  const double largest_product = kind == Inputs::small_integers ? 64 : 1;
  const double off = derivative_error(problem.derivative, problem.sum_type());
  constexpr double kTf32 = 0x1p-11;
  const double taken =
      problem.math == Math::tf32 ? kTf32 : element_format(problem.dtype).unit_roundoff;  // by products
  const double absolute = off == 0 ? 0 : roundings * largest_product * (off + 2 * taken);
  if ((kind == Inputs::small_integers || element(problem.dtype).integer) && off == 0) return {0, 0};
  const double lost = lost_by_instructions(problem.dtype, adder);
  return {loss(adder) * roundings * u + lost, absolute + roundings * lost};
}

class Judge {
 public:
  Judge(const Spmm& problem, const HostInputs& inputs, const PoisonedOutput& output, Adder adder)
      : problem_(problem), inputs_(inputs), output_(output) {
    for (std::int32_t row = 0; row < problem.out_blocks(); ++row)
      tolerance_.push_back(tolerance(problem, row, inputs.kind, adder));
    if (problem.epilogue.edge_bias) situations_ = edge_reference(problem.convolution);
    if (problem.normalisation) prepare_normalisation();
    prepare_ends();
  }

  /// Compares row n of y with entry `at` of the products.
  void compare(std::int64_t n, const Products& products, std::int64_t at, CheckResult& check_result) {
    const std::int64_t features = problem_.out_features();
    if (problem_.normalisation) {
      compare_normalised(n, products[0], at, check_result);
      return;
    }
    for (std::int64_t o = 0; o < features; ++o) {
      const auto i = static_cast<std::size_t>(at * features + o);
      if (problem_.epilogue.lstm) {
        compare_cell(n, o, products, i, check_result);
        continue;
      }
      const Bounded of_v = products.size() > 1 ? sum(products[1], i, o) : Bounded{};
      compare_element(output_, n, o, o,
                      apply(problem_.epilogue, ends(n, o), sum(products[0], i, o), of_v, problem_.sum_type()),
                      check_result);
    }
  }

  void conclude(CheckResult& check_result) {
    for (std::size_t part = 0; part < dnorm_.size(); ++part) compare_dnorm(part, check_result);
    const PoisonedOutput::Findings findings = output_.inspect();
    check_result.unwritten = findings.unwritten;
    check_result.stray = findings.stray;
    check_result.rel_error = error2_ == 0 ? 0 : std::sqrt(error2_ / norm2_);
    check_result.ok = check_result.wrong == 0 && findings.unwritten == 0 && findings.stray == 0;
    check_result.first_failure = findings.first.empty() ? first_wrong_ : findings.first;
  }

 private:
  /// Compares an element of an output; `o` is that of the sums, where it is of one of them.
  void compare_element(const PoisonedOutput& output, std::int64_t n, std::int64_t feature,
                       std::optional<std::int64_t> o, Bounded expected, CheckResult& check_result) {
    const bool integers = inputs_.kind == Inputs::small_integers || element(problem_.dtype).integer;
    const double got = to_double(output.dtype(), output.y(), output.at(n, feature));
    const bool exact = integers && expected.error == 0;
    const double want = exact ? rounded(expected.value, output.dtype()) : expected.value;
    // Neighbours are never closer than u_out·|y|, so half of it lets nothing but equality pass.
    const ElementFormat& out = element_format(output.dtype());
    const double bound = exact ? out.unit_roundoff / 2 * std::fabs(got)
                               : std::max(out.unit_roundoff * std::fabs(got), out.least) + expected.error;
    // Equal to the rounded result is right, an Inf of overflow, too.
    double ratio = got == rounded(want, output.dtype()) ? 0 : error_ratio(got, want, bound);
    if (exact && ratio == 0 && std::signbit(got) != std::signbit(want) && !std::isnan(want) && signs_count())
      ratio = kInf;
    check_result.max_error_ratio = std::max(check_result.max_error_ratio, ratio);
    if (ratio > 1 && check_result.wrong++ == 0)
      first_wrong_ = fmt::format("{}[{}, {}] is {}, expected {}{}: off by {:.3g}, allowed {:.3g}{}",
                                 output.name(), n, feature, got, exact ? "exactly " : "", want,
                                 std::fabs(got - want), exact ? 0 : bound, o ? block_row_of(*o) : "");
    if (std::isfinite(want) && std::isfinite(got)) {
      error2_ += (got - want) * (got - want);
      norm2_ += want * want;
    }
  }

  [[nodiscard]] std::string block_row_of(std::int64_t o) const {
    const std::int64_t row = o / problem_.block.out;
    return fmt::format(" (block row {}, {} blocks)", row, most_blocks(problem_, row));
  }

  /// Compares all that an LSTM's cell, or its gradient, computes from entry `i` of the products.
  void compare_cell(std::int64_t n, std::int64_t o, const Products& products, std::size_t i,
                    CheckResult& check_result) {
    const std::int64_t features = problem_.out_features();
    const auto one = [&](std::string_view name) { return element_of(inputs_.of(name), n, o); };
    const auto gates = [&](std::string_view name) {
      std::array<double, 4> read{};
      for (std::size_t gate = 0; gate < read.size(); ++gate)
        read[gate] = element_of(inputs_.of(name), n, static_cast<std::int64_t>(gate) * features + o);
      return read;
    };
    const auto compare_one = [&](const PoisonedOutput& output, const Bounded& expected,
                                 std::size_t gate = 0) {
      compare_element(output, n, static_cast<std::int64_t>(gate) * features + o, o, expected, check_result);
    };
    if (problem_.operation == Operation::forward) {
      BoundedGates sums;
      for (std::size_t gate = 0; gate < sums.size(); ++gate) sums[gate] = sum(products[gate], i, o);
      const CellReference expected =
          cell_reference(sums, gates("projection"), one("c_before"), problem_.sum_type());
      compare_one(output_, expected.h);
      compare_one(output_.other("c"), expected.c);
      for (std::size_t gate = 0; problem_.epilogue.keep && gate < sums.size(); ++gate)
        compare_one(output_.other("activations"), expected.activations[gate], gate);
      return;
    }
    const double residual = problem_.epilogue.residual ? one("residual") : 0;
    const CellGradientReference expected = cell_gradient_reference(
        sum(products[0], i, o), {gates("activations"), one("c"), one("c_before"), one("dc"), residual},
        problem_.sum_type());
    for (std::size_t gate = 0; gate < expected.dz.size(); ++gate)
      compare_one(output_, expected.dz[gate], gate);
    compare_one(output_.other("dc_before"), expected.dc_before);
  }

  void prepare_normalisation() {
    gain_ = row_of("gain", 0);
    norm_bias_ = row_of("bias", 0);
    const HostActivation& dnorm = inputs_.of("dnorm");
    dnorm_.assign(static_cast<std::size_t>(dnorm.n),
                  std::vector<BoundedSum>(static_cast<std::size_t>(dnorm.features)));
  }
  /// All features of a row of an operand; none where it is not there.
  [[nodiscard]] std::vector<double> row_of(std::string_view name, std::int64_t n) const {
    const HostActivation& of = inputs_.of(name);
    std::vector<double> row;
    for (std::int64_t i = 0; i < of.features; ++i) row.push_back(element_of(of, n, i));
    return row;
  }
  [[nodiscard]] NormalisedRowOperands normalised_operands(std::int64_t n) const {
    return {.gain = gain_,
            .bias = norm_bias_,
            .multiplier = row_of("multiplier", n),
            .addend = row_of("addend", n),
            .c_before = row_of("c_before", n),
            .c = row_of("c", n),
            .dc = row_of("dc", n)};
  }
  /// Compares a batch row of an output that is not the product's; what it has not is empty.
  void compare_row(const PoisonedOutput& output, std::int64_t n, std::span<const Bounded> expected,
                   CheckResult& check_result) {
    for (std::size_t i = 0; i < expected.size(); ++i)
      compare_element(output, n, static_cast<std::int64_t>(i), std::nullopt, expected[i], check_result);
  }
  void compare_row(std::string_view name, std::int64_t n, std::span<const Bounded> expected,
                   CheckResult& check_result) {
    if (!expected.empty()) compare_row(output_.other(name), n, expected, check_result);
  }

  /// Compares all that is made of a row whose sums are normalised, or of the gradient.
  void compare_normalised(std::int64_t n, const Reference& product, std::int64_t at,
                          CheckResult& check_result) {
    const std::int64_t features = problem_.out_features();
    const auto sum_of = [&](std::int64_t o) {
      return apply(problem_.epilogue, ends(n, o),
                   sum(product, static_cast<std::size_t>(at * features + o), o), {}, problem_.sum_type());
    };
    const Epilogue& normalisation = *problem_.normalisation;
    if (problem_.operation == Operation::forward) {
      const PoisonedOutput& sums = output_.other("sums");
      std::vector<double> z;
      for (std::int64_t o = 0; o < features; ++o) {
        compare_element(sums, n, o, o, sum_of(o), check_result);
        z.push_back(to_double(sums.dtype(), sums.y(), sums.at(n, o)));
      }
      const NormalisedRow row =
          normalised_row(normalisation, z, inputs_.epsilon, normalised_operands(n), problem_.sum_type());
      compare_row("statistics", n, row.statistics, check_result);
      compare_row(output_, n, row.y, check_result);
      compare_row("c", n, row.c, check_result);
      return;
    }
    std::vector<Bounded> dh;
    for (std::int64_t o = 0; o < features; ++o) dh.push_back(sum_of(o));
    const NormalisedRowGradient row =
        normalised_row_gradient(normalisation, row_of("sums", n), row_of("statistics", n),
                                normalised_operands(n), dh, problem_.sum_type());
    compare_row(output_, n, row.dx, check_result);
    compare_row("dmultiplier", n, row.dmultiplier, check_result);
    compare_row("daddend", n, row.daddend, check_result);
    compare_row("dc_before", n, row.dc_before, check_result);
    std::vector<BoundedSum>& part = dnorm_[static_cast<std::size_t>(n) % dnorm_.size()];
    for (std::size_t i = 0; i < row.dgain.size(); ++i) {
      part[i].add(row.dgain[i]);
      part[row.dgain.size() + i].add(row.dbias[i]);
    }
  }
  void compare_dnorm(std::size_t part, CheckResult& check_result) {
    const BoundedArithmetic in(problem_.sum_type());
    const auto n = static_cast<std::int64_t>(part);
    std::vector<Bounded> expected;
    for (std::size_t i = 0; i < dnorm_[part].size(); ++i)
      expected.push_back(
          dnorm_[part][i].sum(element_of(inputs_.of("dnorm"), n, static_cast<std::int64_t>(i)), in));
    compare_row("dnorm", n, expected, check_result);
  }

  static double element_of(const HostActivation& of, std::int64_t entry, std::int64_t feature) {
    return to_double(of.dtype, of.bytes.data(), of.at(entry, feature));
  }

  /// The sign of a zero is what sums of integers give; an epilogue may turn it.
  [[nodiscard]] bool signs_count() const {
    return problem_.epilogue == Epilogue{} && !problem_.normalisation;
  }
  [[nodiscard]] Bounded sum(const Reference& product, std::size_t i, std::int64_t o) const {
    const Tolerance& limit = tolerance_[static_cast<std::size_t>(o / problem_.block.out)];
    const double magnitude = product.magnitude.empty() ? 0 : product.magnitude[i];
    // The sum of integers is converted to the type that an epilogue computes in.
    const bool converted = element(problem_.dtype).integer && problem_.result_dtype != DType::i32;
    const double value = converted ? rounded(product.y[i], problem_.sum_type()) : product.y[i];
    return {value, limit.absolute + (limit.of_magnitude == 0 ? 0 : limit.of_magnitude * magnitude)};
  }
  /// Finds the operands that the product's epilogue takes a number of for each output.
  void prepare_ends() {
    if (problem_.epilogue.scale) {
      ends_.alpha = inputs_.alpha;
      ends_.beta = inputs_.beta;
    }
    for (const auto& [name, operand] : inputs_.read) {
      const OperandRow& row = operand_row(name);
      const bool of_outputs =
          row.form == OperandForm::dense ? row.per != Per::block : row.features == Features::outputs;
      if (!of_outputs || !row.taken(problem_)) continue;
      ends_.read.push_back({name});
      read_by_ends_.push_back({&row, &operand});
    }
  }
  const EpilogueOperands& ends(std::int64_t n, std::int64_t o) {
    if (ends_.beta != 0) ends_.y = element_of(inputs_.y, n, o);
    for (std::size_t i = 0; i < ends_.read.size(); ++i) {
      const auto& [row, operand] = read_by_ends_[i];
      const bool dense = row->form == OperandForm::dense;
      const std::int64_t entry = !dense ? n : row->per == Per::situation ? situation_of(n) : 0;
      const std::int64_t feature = dense && row->per == Per::block_row ? o / problem_.block.out : o;
      ends_.read[i].value = element_of(*operand, entry, feature);
    }
    return ends_;
  }
  [[nodiscard]] std::int64_t situation_of(std::int64_t n) const {
    return situations_[static_cast<std::size_t>(n % std::ssize(situations_))];
  }

  struct ReadByEnds {
    const OperandRow* row;
    const HostActivation* operand;
  };

  const Spmm& problem_;
  const HostInputs& inputs_;
  const PoisonedOutput& output_;
  std::vector<Tolerance> tolerance_;
  std::vector<std::int32_t> situations_;  ///< of the positions of an image
  EpilogueOperands ends_;                 ///< of the output that is compared
  std::vector<ReadByEnds> read_by_ends_;  ///< where the numbers of `ends_.read` are, in the same order
  std::vector<double> gain_;              ///< of all groups
  std::vector<double> norm_bias_;
  std::vector<std::vector<BoundedSum>> dnorm_;  ///< what is added to each part
  double error2_ = 0;
  double norm2_ = 0;
  std::string first_wrong_;
};

}  // namespace

Adder adder_of(const Spmm& problem, const Plan& plan) { return adder_of(problem.ieee(), plan); }

namespace {

constexpr std::int64_t kStretch = 256;  // rows of y: bounds the memory that a reference takes

Products stretch_of(const Spmm& problem, const HostInputs& inputs, std::int64_t first) {
  const std::int64_t count = std::min(kStretch, problem.y_rows(inputs.n) - first);
  const bool magnitude =
      inputs.kind == Inputs::random || derivative_error(problem.derivative, problem.sum_type()) != 0;
  HostOperands operands = inputs.operands();
  const std::size_t weight_bytes = inputs.w.size() / static_cast<std::size_t>(problem.gates_of_cell());
  Products products;
  for (std::int32_t weight = 0; weight < problem.weights(); ++weight) {
    operands.w = problem.epilogue.glu && weight == 1
                     ? inputs.of("v").bytes.data()
                     : inputs.w.data() + static_cast<std::size_t>(weight) * weight_bytes;
    products.push_back(reference(problem, operands, first, count, magnitude));
  }
  return products;
}

/// `of(first)` is the products of the stretch that begins there.
template <class Of>
CheckResult check_stretches(const Spmm& problem, const HostInputs& inputs, const PoisonedOutput& output,
                            Adder adder, Of of) {
  const std::int64_t rows = problem.y_rows(inputs.n);
  if (output.n() != rows || output.width() != result_features(problem) ||
      output.dtype() != problem.result_dtype)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("y is [{}, {}] {}, but the problem with n = {} makes [{}, {}] {}", output.n(),
                            output.width(), name(output.dtype()), inputs.n, rows, result_features(problem),
                            name(problem.result_dtype)));
  CheckResult check_result;
  Judge judge(problem, inputs, output, adder);
  for (std::int64_t first = 0; first < rows; first += kStretch) {
    const Products& products = of(first);
    for (std::int64_t n = 0; n < std::min(kStretch, rows - first); ++n)
      judge.compare(first + n, products, n, check_result);
  }
  judge.conclude(check_result);
  return check_result;
}

}  // namespace

CheckResult check(const Spmm& problem, const HostInputs& inputs, const PoisonedOutput& output, Adder adder) {
  return check_stretches(problem, inputs, output, adder,
                         [&](std::int64_t first) { return stretch_of(problem, inputs, first); });
}

Expected expect(const Spmm& problem, const HostInputs& inputs) {
  Expected expected;
  for (std::int64_t first = 0; first < problem.y_rows(inputs.n); first += kStretch) {
    expected.push_back(stretch_of(problem, inputs, first));
  }
  return expected;
}

CheckResult check(const Spmm& problem, const HostInputs& inputs, const Expected& expected,
                  const PoisonedOutput& output, Adder adder) {
  return check_stretches(problem, inputs, output, adder, [&](std::int64_t first) -> const Products& {
    return expected[static_cast<std::size_t>(first / kStretch)];
  });
}

}  // namespace sparsekiln
