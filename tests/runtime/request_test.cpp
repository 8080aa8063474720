#include "runtime/request.h"

#include <functional>
#include <set>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

namespace sparsekiln {
namespace {

struct Asked {
  Problem problem;
  Target target{Target::Kind::cuda, "sm_90", 132};
  Plan plan{{64, {}}};
};

Asked sample() {
  Asked asked;
  asked.problem.layout = patterns::random(16, 16, 0.3, 1);
  asked.problem.batch = 64;
  return asked;
}

Digest key(const Asked& asked) { return identity_of(asked.problem, asked.target, asked.plan).key(); }

TEST_CASE("every field that decides the bytes changes the key") {
  const std::vector<std::function<void(Asked&)>> changes{
      [](Asked& a) { a.problem.operation = Operation::grad_input; },
      [](Asked& a) { a.problem.layout = patterns::random(16, 16, 0.3, 2); },
      [](Asked& a) { a.problem.layout = patterns::random(16, 17, 0.3, 1); },
      [](Asked& a) { a.problem.block = {32, 16}; },
      [](Asked& a) { a.problem.block = {16, 32}; },
      [](Asked& a) { a.problem.batch = 63; },
      [](Asked& a) { a.problem.batch = Batch::up_to(64); },
      [](Asked& a) { a.problem.dtype = DType::bf16; },
      [](Asked& a) { a.problem.out_dtype = DType::bf16; },
      [](Asked& a) { a.problem.math = Math::tf32; },
      [](Asked& a) { a.problem.order = ActivationOrder::feature_major; },
      [](Asked& a) { a.problem.strict_absent = true; },
      [](Asked& a) { a.problem.epilogue.scale = true; },
      [](Asked& a) { a.problem.epilogue.bias = true; },
      [](Asked& a) { a.problem.epilogue.activation = Activation::relu; },
      [](Asked& a) { a.problem.epilogue.activation = Activation::gelu; },
      [](Asked& a) { a.problem.epilogue.gated = true; },
      [](Asked& a) { a.problem.epilogue.residual = true; },
      [](Asked& a) { a.problem.derivative = Activation::relu; },
      [](Asked& a) { a.problem.gates = true; },
      [](Asked& a) { a.problem.bias_gradient = true; },
      [](Asked& a) { a.problem.gate_gradient = true; },
      [](Asked& a) { a.problem.alignment = 8; },
      [](Asked& a) { a.problem.cut_in_features = 500; },
      [](Asked& a) { a.problem.cut_out_features = 500; },
      [](Asked& a) { a.target.arch = "sm_90a"; },
      [](Asked& a) { a.target.workers = 131; },
      [](Asked& a) { a.plan[0].up_to = 65; },
      [](Asked& a) { a.plan[0].config.variant = Variant::vector; },
      [](Asked& a) { a.plan[0].config.tile_n = 32; },
      [](Asked& a) { a.plan[0].config.tile_out = 3; },
      [](Asked& a) { a.plan[0].config.stages = 2; },
      [](Asked& a) { a.plan[0].config.warps = 8; },
      [](Asked& a) { a.plan[0].config.split = 2; },
      [](Asked& a) { a.plan[0].config.rows = 2; },
      [](Asked& a) { a.plan[0].config.merge = 2; },
      [](Asked& a) { a.plan[0].config.table = TableForm::global; },
      [](Asked& a) { a.plan[0].config.operand_a = OperandA::w; },
      [](Asked& a) { a.plan[0].config.packed = true; },
      [](Asked& a) { a.plan.push_back({128, {}}); },
  };
  std::set<Digest> keys{key(sample())};
  for (std::size_t change = 0; change < changes.size(); ++change) {
    CAPTURE(change);
    Asked asked = sample();
    changes[change](asked);
    CHECK(keys.insert(key(asked)).second);
  }
}

TEST_CASE("with attached tables the layout has no part in the key, and all else has") {
  Asked asked = sample();
  asked.plan[0].config.table = TableForm::attached;
  const Digest base = key(asked);
  CHECK_FALSE(base == key(sample()));
  asked.problem.layout = patterns::random(5, 70, 0.9, 2);
  CHECK(key(asked) == base);
  asked.problem.block = {16, 32};
  CHECK_FALSE(key(asked) == base);
}

TEST_CASE("the same request has the same key") { CHECK(key(sample()) == key(sample())); }

TEST_CASE("requests that differ in one wish are different rows of the table") {
  const Request base{patterns::random(16, 16, 0.3, 1).digest(), {}, nullptr};
  const std::vector<std::function<void(Request&)>> changes{
      [](Request& r) { r.layout = patterns::random(16, 16, 0.3, 2).digest(); },
      [](Request& r) { r.options.block = {8, 32}; },
      [](Request& r) { r.options.batch = Batch::up_to(1); },
      [](Request& r) { r.options.dtype = DType::bf16; },
      [](Request& r) { r.options.out_dtype = DType::f32; },
      [](Request& r) { r.options.operation = Operation::grad_input; },
      [](Request& r) { r.options.math = Math::tf32; },
      [](Request& r) { r.options.order = ActivationOrder::feature_major; },
      [](Request& r) { r.options.strict_absent = true; },
      [](Request& r) { r.options.epilogue.scale = true; },
      [](Request& r) { r.options.epilogue.bias = true; },
      [](Request& r) { r.options.epilogue.activation = Activation::relu; },
      [](Request& r) { r.options.epilogue.activation = Activation::gelu; },
      [](Request& r) { r.options.epilogue.gated = true; },
      [](Request& r) { r.options.epilogue.residual = true; },
      [](Request& r) { r.options.derivative = Activation::relu; },
      [](Request& r) { r.options.gates = true; },
      [](Request& r) { r.options.bias_gradient = true; },
      [](Request& r) { r.options.gate_gradient = true; },
      [](Request& r) { r.options.alignment = 8; },
      [](Request& r) { r.options.in_features = 500; },
      [](Request& r) { r.options.out_features = 500; },
      [](Request& r) { r.options.target = "cpu"; },
      [](Request& r) { r.options.config = Config{}; },
      [](Request& r) { r.options.attached = true; },
      [](Request& r) { r.options.tiered = true; },
      [](Request& r) { r.options.cache_dir = "elsewhere"; },
      [](Request& r) { r.context = &r; },
  };
  CHECK(base == Request(base));
  CHECK(RequestHash{}(base) == RequestHash{}(Request(base)));
  for (std::size_t change = 0; change < changes.size(); ++change) {
    CAPTURE(change);
    Request other = base;
    changes[change](other);
    CHECK_FALSE(other == base);
    CHECK(RequestHash{}(other) != RequestHash{}(base));
  }
}

}  // namespace
}  // namespace sparsekiln
