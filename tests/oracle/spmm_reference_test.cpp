#include "oracle/spmm_reference.h"

#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

#include "compiler/spmm.h"
#include "oracle/spmm_inputs.h"

namespace sparsekiln {
namespace {

constexpr std::int64_t kN = 3;

Problem problem_of(Operation operation) {
  Problem problem;
  problem.operation = operation;
  problem.layout = patterns::random(3, 5, 0.5, 2);
  problem.block = {8, 16};
  problem.batch = kN;
  return problem;
}

/// The scalar that training descends: the sum of y·c for a fixed c.
double loss(const Problem& problem, const std::vector<float>& x, const HostInputs& gradient) {
  const HostOperands operands{x.data(), gradient.w.data(), Spmm(problem).in_features()};
  const Reference forward = reference(problem, operands, 0, kN, false);
  const auto* c = reinterpret_cast<const float*>(gradient.x.data());
  double sum = 0;
  for (std::size_t i = 0; i < forward.y.size(); ++i) sum += forward.y[i] * c[i];
  return sum;
}

TEST_CASE("the gradient of the input is what finite differences of the forward product give, in float64") {
  const Problem forward = problem_of(Operation::forward);
  const Problem backward = problem_of(Operation::grad_input);
  // Integers: products, sums and differences are exact, and the loss is linear in x.
  const HostInputs gradient = make_inputs(backward, kN, Inputs::small_integers, 1);
  const Reference dx = reference(backward, gradient.operands(), 0, kN, false);
  const HostInputs inputs = make_inputs(forward, kN, Inputs::small_integers, 2);
  const auto* const first = reinterpret_cast<const float*>(inputs.x.data());
  std::vector<float> x(first, first + kN * forward.in_features());
  REQUIRE(dx.y.size() == x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float at = x[i];
    x[i] = at + 1;
    const double above = loss(forward, x, gradient);
    x[i] = at - 1;
    const double below = loss(forward, x, gradient);
    x[i] = at;
    CAPTURE(i);
    CHECK(dx.y[i] == (above - below) / 2);
  }
}

}  // namespace
}  // namespace sparsekiln
