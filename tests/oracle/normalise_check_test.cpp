// Results of a layer normalisation and of its gradient, of a kernel that is right and of ones with one fault
// each.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/activation.h"
#include "compiler/element.h"
#include "oracle/spmm_check.h"

using namespace sparsekiln;

namespace {

/// What a kernel under test does wrong.
enum class Fault : std::uint8_t {
  none,
  // forward
  no_epsilon,
  mean_lacks_a_feature,
  mean_not_subtracted,
  variance_lacks_a_feature,
  statistics_of_the_row_before,
  statistics_unwritten,
  gain_of_the_next_feature,
  gain_of_the_first_group,
  bias_left_out,
  multiplier_left_out,
  addend_left_out,
  activation_left_out,
  row_skipped,
  // the gradient
  residual_left_out,
  derivative_left_out,
  mean_of_e_left_out,
  mean_of_products_left_out,
  not_divided,
  mean_of_all_groups,
  row_left_out_of_dnorm,
  dnorm_not_added,
  dnorm_of_the_next_part,
  dmultiplier_of_u,
  dc_left_out,
  dh_rounded,
  e_rounded,
};

/// 4 × 4 blocks, with an empty block row and an empty column: a group of four gates has zeros alone.
Problem sample(Operation operation, std::string_view epilogue, DType dtype) {
  const std::vector<std::uint8_t> mask = {1, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1};
  Problem problem;
  problem.operation = operation;
  problem.layout = Layout::from_mask(4, 4, mask);
  problem.block = {16, 16};
  problem.batch = 7;
  problem.dtype = dtype;
  problem.out_dtype = dtype;
  problem.epilogue = parse_epilogue(epilogue);
  validate(problem);
  return problem;
}

float sigmoid(float t) { return 1 / (1 + std::exp(-t)); }

/// A kernel in float32, as a correct one may be, with a fault.
class Kernel {
 public:
  Kernel(const Problem& problem, const HostInputs& inputs, Fault fault, PoisonedOutput& output)
      : product_(problem),
        ends_(problem.epilogue),
        type_(problem.out_dtype),
        inputs_(inputs),
        fault_(fault),
        output_(output),
        groups_(static_cast<std::size_t>(product_.groups_of_sums())),
        features_(static_cast<std::size_t>(product_.normalised_features())) {}

  void run() {
    const Reference sums = reference(product_, inputs_.operands(), 0, inputs_.n, false);
    for (std::int64_t n = 0; n < inputs_.n; ++n) {
      if (fault_ == Fault::row_skipped && n == 3) continue;
      std::vector<float> row;
      const auto width = static_cast<std::size_t>(product_.out_features());
      const bool forwards = product_.operation == Operation::forward;
      for (std::size_t i = 0; i < width; ++i) {
        const float sum = static_cast<float>(sums.y[static_cast<std::size_t>(n) * width + i]) +
                          (ends_.residual && fault_ != Fault::residual_left_out ? of("residual", n, i) : 0);
        row.push_back(forwards || fault_ == Fault::dh_rounded ? stored(sum) : sum);
      }
      (forwards ? forward(n, row) : backward(n, row));
    }
  }

 private:
  struct Moments {
    float mean, inverse;
  };
  [[nodiscard]] float stored(float value) const {
    float room = 0;
    store(type_, value, &room, 0);
    return to_float(type_, &room, 0);
  }
  [[nodiscard]] float of(std::string_view name, std::int64_t n, std::size_t i) const {
    const HostActivation& matrix = inputs_.of(name);
    return to_float(matrix.dtype, matrix.bytes.data(), matrix.at(n, static_cast<std::int64_t>(i)));
  }
  static void put(PoisonedOutput& output, std::int64_t n, std::size_t i, float value) {
    store(output.dtype(), value, output.y(), output.at(n, static_cast<std::int64_t>(i)));
  }
  PoisonedOutput& other(std::string_view name) {
    for (PoisonedOutput& one : output_.others())
      if (one.name() == name) return one;
    return output_;
  }
  [[nodiscard]] float gain(std::size_t i) const {
    if (fault_ == Fault::gain_of_the_next_feature) i = (i + 1) % (groups_ * features_);
    if (fault_ == Fault::gain_of_the_first_group) i %= features_;
    return of("gain", 0, i);
  }
  [[nodiscard]] float bias(std::size_t i) const {
    if (fault_ == Fault::bias_left_out) return 0;
    return of("bias", 0, i);
  }
  [[nodiscard]] float multiplier(std::int64_t n, std::size_t i) const {
    return ends_.multiply && fault_ != Fault::multiplier_left_out ? of("multiplier", n, i) : 1;
  }
  [[nodiscard]] float argument(std::int64_t n, std::size_t i, float v) const {
    v *= multiplier(n, i);
    return ends_.add && fault_ != Fault::addend_left_out ? v + of("addend", n, i) : v;
  }
  [[nodiscard]] float activated(Activation activation, float t) const {
    if (fault_ == Fault::activation_left_out) return t;
    return static_cast<float>(row_of(activation).function(t));
  }
  [[nodiscard]] float gate(std::size_t group, float v) const {
    return group == 2 ? activated(Activation::tanh, v) : activated(Activation::sigmoid, v);
  }

  Moments moments(std::int64_t n, const std::vector<float>& z, std::size_t group) {
    const float* const first = z.data() + group * features_;
    const auto count = static_cast<float>(features_);
    float sum = 0;
    for (std::size_t i = 0; i + (fault_ == Fault::mean_lacks_a_feature ? 1 : 0) < features_; ++i)
      sum += first[i];
    const float mean = sum / count;
    float squares = 0;
    for (std::size_t i = 0; i + (fault_ == Fault::variance_lacks_a_feature ? 1 : 0) < features_; ++i)
      squares += (first[i] - mean) * (first[i] - mean);
    const float epsilon = fault_ == Fault::no_epsilon ? 0 : static_cast<float>(inputs_.epsilon);
    const Moments own{mean, 1 / std::sqrt(squares / count + epsilon)};
    const Moments used = fault_ == Fault::statistics_of_the_row_before && n > 0 ? before_[group] : own;
    before_[group] = own;
    if (fault_ != Fault::statistics_unwritten || n != 2) {
      put(other("statistics"), n, 2 * group, used.mean);
      put(other("statistics"), n, 2 * group + 1, used.inverse);
    }
    return {fault_ == Fault::mean_not_subtracted ? 0 : used.mean, used.inverse};
  }

  void forward(std::int64_t n, const std::vector<float>& z) {
    for (std::size_t i = 0; i < z.size(); ++i) put(other("sums"), n, i, z[i]);
    std::vector<float> v;
    for (std::size_t group = 0; group < groups_; ++group) {
      const Moments of_group = moments(n, z, group);
      for (std::size_t i = group * features_; i < (group + 1) * features_; ++i)
        v.push_back((z[i] - of_group.mean) * of_group.inverse * gain(i) + bias(i));
    }
    for (std::size_t i = 0; i < features_; ++i) {
      if (!ends_.lstm) {
        put(output_, n, i, activated(ends_.activation, argument(n, i, v[i])));
        continue;
      }
      const float g = gate(2, v[2 * features_ + i]) * multiplier(n, i);
      const float c = gate(1, v[features_ + i]) * of("c_before", n, i) + gate(0, v[i]) * g;
      put(other("c"), n, i, c);
      put(output_, n, i, gate(3, v[3 * features_ + i]) * std::tanh(c));
    }
  }

  void backward(std::int64_t n, const std::vector<float>& dh) {
    const std::int64_t of_statistics = fault_ == Fault::statistics_of_the_row_before && n > 0 ? n - 1 : n;
    std::vector<float> u, v, dv, inverse;
    for (std::size_t i = 0; i < groups_ * features_; ++i) {
      const std::size_t group = i / features_;
      inverse.push_back(of("statistics", of_statistics, 2 * group + 1));
      const float mean =
          fault_ == Fault::mean_not_subtracted ? 0 : of("statistics", of_statistics, 2 * group);
      u.push_back((of("sums", n, i) - mean) * inverse[i]);
      v.push_back(u[i] * gain(i) + bias(i));
    }
    dv.resize(v.size());
    for (std::size_t i = 0; i < features_; ++i)
      ends_.lstm ? of_cell(n, i, dh[i], v, dv) : of_argument(n, i, dh[i], u, v, dv);
    const std::int64_t parts = inputs_.of("dnorm").n;
    std::int64_t part = n % parts;
    if (fault_ == Fault::dnorm_of_the_next_part) part = (part + 1) % parts;
    const auto add = [&](std::size_t i, float value) {
      PoisonedOutput& dnorm = other("dnorm");
      const float old =
          fault_ == Fault::dnorm_not_added && n < parts
              ? 0
              : to_float(dnorm.dtype(), dnorm.y(), dnorm.at(part, static_cast<std::int64_t>(i)));
      put(dnorm, part, i, old + value);
    };
    for (std::size_t i = 0; i < v.size() && !(fault_ == Fault::row_left_out_of_dnorm && n == 5); ++i) {
      add(i, dv[i] * u[i]);
      add(v.size() + i, dv[i]);
    }
    finish(n, u, dv, inverse);
  }
  void of_argument(std::int64_t n, std::size_t i, float d, const std::vector<float>& u,
                   const std::vector<float>& v, std::vector<float>& dv) {
    if (fault_ != Fault::derivative_left_out)
      d *= static_cast<float>(row_of(ends_.activation).derivative(argument(n, i, v[i])));
    if (ends_.add) put(other("daddend"), n, i, d);
    if (ends_.multiply)
      put(other("dmultiplier"), n, i, d * (fault_ == Fault::dmultiplier_of_u ? u[i] : v[i]));
    dv[i] = d * multiplier(n, i);
  }
  void of_cell(std::int64_t n, std::size_t at, float dh, const std::vector<float>& v,
               std::vector<float>& dv) {
    const float i = sigmoid(v[at]);
    const float f = sigmoid(v[features_ + at]);
    const float g = std::tanh(v[2 * features_ + at]);
    const float o = sigmoid(v[3 * features_ + at]);
    const float t = std::tanh(of("c", n, at));
    const float d = dh * o * (1 - t * t) + (fault_ == Fault::dc_left_out ? 0 : of("dc", n, at));
    dv[at] = d * g * multiplier(n, at) * i * (1 - i);
    dv[features_ + at] = d * of("c_before", n, at) * f * (1 - f);
    dv[2 * features_ + at] = d * i * multiplier(n, at) * (1 - g * g);
    dv[3 * features_ + at] = dh * t * o * (1 - o);
    put(other("dc_before"), n, at, d * f);
  }
  void finish(std::int64_t n, const std::vector<float>& u, const std::vector<float>& dv,
              const std::vector<float>& inverse) {
    for (std::size_t group = 0; group < groups_; ++group) {
      float e_sum = 0;
      float product_sum = 0;
      const bool all = fault_ == Fault::mean_of_all_groups;
      const std::size_t first = all ? 0 : group * features_;
      const std::size_t end = all ? u.size() : first + features_;
      for (std::size_t i = first; i < end; ++i) {
        e_sum += dv[i] * gain(i);
        product_sum += dv[i] * gain(i) * u[i];
      }
      const auto count = static_cast<float>(end - first);
      const float e_mean = fault_ == Fault::mean_of_e_left_out ? 0 : e_sum / count;
      const float product_mean = fault_ == Fault::mean_of_products_left_out ? 0 : product_sum / count;
      for (std::size_t i = group * features_; i < (group + 1) * features_; ++i) {
        const float e = dv[i] * gain(i);
        const float rest = (fault_ == Fault::e_rounded ? stored(e) : e) - e_mean - u[i] * product_mean;
        put(output_, n, i, fault_ == Fault::not_divided ? rest : rest * inverse[i]);
      }
    }
  }

  Spmm product_;
  Epilogue ends_;
  DType type_;
  const HostInputs& inputs_;
  Fault fault_;
  PoisonedOutput& output_;
  std::size_t groups_;
  std::size_t features_;
  Moments before_[4]{};
};

CheckResult judge(const Problem& problem, const HostInputs& inputs, Fault fault) {
  PoisonedOutput output(problem, inputs.n);
  output.hold(inputs);
  Kernel(problem, inputs, fault, output).run();
  return check(problem, inputs, output, Adder::float32);
}

HostInputs inputs_of(const Problem& problem, Inputs kind = Inputs::random, double epsilon = 0.3) {
  HostInputs inputs = make_inputs(problem, 7, kind, 3);
  if (problem.operation == Operation::forward) inputs.epsilon = epsilon;
  return inputs;
}

constexpr const char* kForward[] = {"layer_norm",
                                    "layer_norm+gelu",
                                    "layer_norm+multiply+relu",
                                    "layer_norm+add+hardswish",
                                    "layer_norm+multiply+add+relu",
                                    "layer_norm+lstm",
                                    "layer_norm+multiply+lstm"};

}  // namespace

TEST_CASE("a right layer normalisation passes, whatever its inputs, type, epsilon and parts") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Inputs kind : {Inputs::small_integers, Inputs::random})
      for (const char* const epilogue : kForward) {
        CAPTURE(name(dtype));
        CAPTURE(epilogue);
        const Problem forward = sample(Operation::forward, epilogue, dtype);
        for (const double epsilon : {1e-5, 0.3}) {
          const CheckResult result = judge(forward, inputs_of(forward, kind, epsilon), Fault::none);
          CHECK_MESSAGE(result.ok, result.first_failure);
        }
        const Problem gradient = sample(Operation::grad_input, std::string(epilogue) + "+residual", dtype);
        HostInputs inputs = inputs_of(gradient, kind);
        for (const std::int64_t parts : {1, 3, 7, 20}) {
          take_parts(gradient, inputs, parts);
          const CheckResult result = judge(gradient, inputs, Fault::none);
          CHECK_MESSAGE(result.ok, result.first_failure);
        }
      }
}

TEST_CASE("a layer normalisation with any one fault is found") {
  using enum Fault;
  struct Row {
    const char* epilogue;
    std::vector<Fault> faults;
  };
  const std::vector<Row> rows{
      {"layer_norm",
       {no_epsilon, mean_lacks_a_feature, mean_not_subtracted, variance_lacks_a_feature,
        statistics_of_the_row_before, statistics_unwritten, gain_of_the_next_feature, bias_left_out,
        row_skipped}},
      {"layer_norm+multiply+add+relu",
       {mean_not_subtracted, multiplier_left_out, addend_left_out, activation_left_out, bias_left_out}},
      {"layer_norm+multiply+lstm",
       {no_epsilon, mean_lacks_a_feature, mean_not_subtracted, variance_lacks_a_feature,
        statistics_of_the_row_before, gain_of_the_first_group, bias_left_out, multiplier_left_out,
        activation_left_out}}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Row& row : rows)
      for (const Fault fault : row.faults) {
        const Problem problem = sample(Operation::forward, row.epilogue, dtype);
        CAPTURE(name(dtype));
        CAPTURE(row.epilogue);
        CAPTURE(static_cast<int>(fault));
        CHECK_FALSE(judge(problem, inputs_of(problem), fault).ok);
      }
}

TEST_CASE("the gradient of a layer normalisation with any one fault is found") {
  using enum Fault;
  struct Row {
    const char* epilogue;
    std::vector<Fault> faults;
  };
  const std::vector<Row> rows{
      {"layer_norm+residual",
       {residual_left_out, mean_of_e_left_out, mean_of_products_left_out, not_divided, mean_not_subtracted,
        statistics_of_the_row_before, gain_of_the_next_feature, row_left_out_of_dnorm, dnorm_not_added,
        dnorm_of_the_next_part, row_skipped}},
      {"layer_norm+multiply+add+relu+residual",
       {derivative_left_out, multiplier_left_out, addend_left_out, bias_left_out, dmultiplier_of_u,
        mean_of_e_left_out, mean_of_products_left_out}},
      {"layer_norm+multiply+gelu", {derivative_left_out, bias_left_out, dmultiplier_of_u}},
      {"layer_norm+multiply+lstm+residual",
       {residual_left_out, mean_of_e_left_out, mean_of_products_left_out, not_divided, mean_of_all_groups,
        statistics_of_the_row_before, gain_of_the_first_group, bias_left_out, multiplier_left_out,
        row_left_out_of_dnorm, dnorm_not_added, dc_left_out}}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Row& row : rows)
      for (const Fault fault : row.faults) {
        const Problem problem = sample(Operation::grad_input, row.epilogue, dtype);
        CAPTURE(name(dtype));
        CAPTURE(row.epilogue);
        CAPTURE(static_cast<int>(fault));
        HostInputs inputs = inputs_of(problem);
        take_parts(problem, inputs, 3);
        CHECK_FALSE(judge(problem, inputs, fault).ok);
      }
}

TEST_CASE("a gradient of a layer normalisation that is rounded to 16 bits before it is finished is found") {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const char* const epilogue :
         {"layer_norm", "layer_norm+multiply+add+relu+residual", "layer_norm+multiply+lstm+residual"})
      for (const Fault fault : {Fault::dh_rounded, Fault::e_rounded}) {
        const Problem problem = sample(Operation::grad_input, epilogue, dtype);
        CAPTURE(name(dtype));
        CAPTURE(epilogue);
        CAPTURE(static_cast<int>(fault));
        CHECK_FALSE(judge(problem, inputs_of(problem), fault).ok);
      }
}

TEST_CASE(
    "a mean that lacks one of many features, and an epsilon of 1e-5, are found in statistics of float32") {
  Problem problem = sample(Operation::forward, "layer_norm", DType::bf16);
  problem.block = {128, 16};
  for (const Fault fault : {Fault::mean_lacks_a_feature, Fault::variance_lacks_a_feature}) {
    const CheckResult result = judge(problem, inputs_of(problem), fault);
    CHECK_FALSE(result.ok);
    CHECK(result.first_failure.starts_with("statistics["));
  }
  // Where all sums are 0, epsilon is all of the variance.
  problem.layout = Layout::from_mask(4, 4, std::vector<std::uint8_t>(16));
  const HostInputs inputs = inputs_of(problem, Inputs::random, 1e-5);
  CHECK(judge(problem, inputs, Fault::none).ok);
  CHECK_FALSE(judge(problem, inputs, Fault::no_epsilon).ok);
}

TEST_CASE("a batch row with an Inf or NaN among its sums is all NaN, and others are not") {
  for (const char* const epilogue : {"layer_norm+relu", "layer_norm+lstm"}) {
    const Problem problem = sample(Operation::forward, epilogue, DType::f32);
    HostInputs inputs = inputs_of(problem);
    const std::int64_t stride = inputs.x_stride;
    store(DType::f32, std::numeric_limits<float>::infinity(), inputs.x.data(), 2 * stride);
    store(DType::f32, std::numeric_limits<float>::quiet_NaN(), inputs.x.data(), 4 * stride);
    PoisonedOutput output(problem, inputs.n);
    Kernel(problem, inputs, Fault::none, output).run();
    const auto number = [&](std::int64_t n, std::int64_t i) {
      return to_float(DType::f32, output.y(), output.at(n, i));
    };
    for (const std::int64_t n : {2, 4}) CHECK(std::isnan(number(n, 1)));
    CHECK(check(problem, inputs, output, Adder::float32).ok);
    PoisonedOutput finite = output;
    store(DType::f32, 0.5F, finite.y(), finite.at(2, 1));
    CHECK_FALSE(check(problem, inputs, finite, Adder::float32).ok);
    PoisonedOutput spread = output;
    store(DType::f32, std::numeric_limits<float>::quiet_NaN(), spread.y(), spread.at(3, 1));
    CHECK_FALSE(check(problem, inputs, spread, Adder::float32).ok);
  }
}

TEST_CASE("statistics for a gradient are those of its sums, of which some rows are zeros") {
  const Problem problem = sample(Operation::grad_input, "layer_norm+lstm", DType::f32);
  const HostInputs inputs = inputs_of(problem);
  const HostActivation& sums = inputs.of("sums");
  const HostActivation& statistics = inputs.of("statistics");
  const std::int64_t features = Spmm(problem).normalised_features();
  std::int64_t zeros = 0;
  for (std::int64_t n = 0; n < 7; ++n)
    for (std::int64_t group = 0; group < 4; ++group) {
      double mean = 0;
      double square = 0;
      const auto z = [&](std::int64_t i) {
        return to_double(DType::f32, sums.bytes.data(), sums.at(n, group * features + i));
      };
      for (std::int64_t i = 0; i < features; ++i) mean += z(i) / static_cast<double>(features);
      for (std::int64_t i = 0; i < features; ++i)
        square += (z(i) - mean) * (z(i) - mean) / static_cast<double>(features);
      zeros += square == 0 ? 1 : 0;
      const auto stored = [&](std::int64_t i) {
        return to_double(DType::f32, statistics.bytes.data(), statistics.at(n, 2 * group + i));
      };
      CHECK(stored(0) == doctest::Approx(mean));
      CHECK(stored(1) == doctest::Approx(1 / std::sqrt(square + inputs.epsilon)));
    }
  CHECK(zeros > 0);
  CHECK(zeros < 28);
}
