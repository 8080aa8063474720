// Problems that make sense and that no config of a target computes: the message says what the problem itself
// has that the target does not, and whatever it says would work does.

#include <array>
#include <functional>
#include <regex>
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "autotune/default_plan.h"
#include "compiler/build.h"
#include "compiler/cuda/emit.h"
#include "compiler/cuda/sddmm.h"
#include "compiler/problem_kind.h"

namespace sparsekiln {
namespace {

struct Asked {
  Problem problem;
  Target target;
};

/// Why there is no default plan; empty where there is one, whose source can be emitted.
std::string refusal(const Asked& asked) {
  try {
    validate(asked.problem);
    const Plan plan = choose_plan(asked.problem, asked.target);
    static_cast<void>(emit_source(asked.problem, asked.target, plan));
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void compute_in(Problem& problem, DType type, DType result) {
  problem.dtype = type;
  problem.out_dtype = result;
  problem.math = Math::ieee;
}

/// What a message may say, and what its reader then does.
struct Remedy {
  std::regex text;
  std::function<void(Asked&, const std::smatch&)> follow;
};
const std::vector<Remedy>& remedies() {
  static const std::vector<Remedy> all{
      {std::regex("blocks of (\\d+x\\d+)"),
       [](Asked& asked, const std::smatch& match) { asked.problem.block = parse_block_shape(match.str(1)); }},
      {std::regex("output type (\\w+)"),
       [](Asked& asked, const std::smatch& match) { asked.problem.out_dtype = parse_dtype(match.str(1)); }},
      {std::regex("(?:dtype )?(f16|f32)(?: with math ieee)?"),
       [](Asked& asked, const std::smatch& match) {
         compute_in(asked.problem, parse_dtype(match.str(1)), parse_dtype(match.str(1)));
       }},
      {std::regex("ieee"), [](Asked& asked, const std::smatch&) { asked.problem.math = Math::ieee; }},
      {std::regex("target (cpu)|a CUDA target of (sm_80) or later"),
       [](Asked& asked, const std::smatch& match) {
         asked.target = Target::parse(match[1].matched ? "cpu:2" : "sm_80");
       }},
      {std::regex("batch-major ones, channels-last"),
       [](Asked& asked, const std::smatch&) { asked.problem.order = ActivationOrder::batch_major; }},
      {std::regex("the sum of dy over its rows, computed by the caller"),
       [](Asked& asked, const std::smatch&) { asked.problem.bias_gradient = false; }},
  };
  return all;
}

/// Follows each of the remedies that a message names, all of which must be known.
void follow_all(const Asked& asked, const std::string& message) {
  CAPTURE(message);
  std::smatch found;
  REQUIRE(std::regex_match(message, found, std::regex("[^;:]+(?::[^;]*)?[;:] (.*[^,]),? would work")));
  std::string rest = found.str(1);
  rest = std::regex_replace(rest, std::regex("(output type \\w+) or (\\w+)"), "$1, or output type $2");
  int followed = 0;
  for (const Remedy& remedy : remedies())
    for (std::smatch match; std::regex_search(rest, match, remedy.text); ++followed) {
      Asked again = asked;
      remedy.follow(again, match);
      const std::string what = match.str();
      CAPTURE(what);
      CHECK(refusal(again) == "");
      rest = match.prefix().str() + match.suffix().str();
    }
  CHECK(followed > 0);
  CHECK(std::regex_match(rest, std::regex("(?:,|or| )*")));  // else it names something unknown
}

template <class Use>
void for_each_problem(Use use) {
  struct Types {
    DType dtype;
    DType result;
    Math math = Math::ieee;
  };
  const std::array types{Types{DType::f32, DType::f32},  Types{DType::f32, DType::f32, Math::tf32},
                         Types{DType::f16, DType::f16},  Types{DType::bf16, DType::bf16},
                         Types{DType::f64, DType::f64},  Types{DType::e4m3, DType::bf16},
                         Types{DType::e5m2, DType::f16}, Types{DType::i8, DType::i32}};
  const char* const epilogues[] = {"none", "silu+glu", "lstm", "layer_norm", "layer_norm+lstm", "edge_bias"};
  const char* const convolutions[] = {"none", "kernel=3 padding=1 input=6x6",
                                      "kernel=3 padding=1 input=6x6 transposed"};
  const Layout layout = patterns::random(4, 4, 0.6, 1);
  for (const Types& type : types)
    for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
      for (const char* const convolution : convolutions)
        for (const ActivationOrder order : {ActivationOrder::batch_major, ActivationOrder::feature_major})
          for (const char* const epilogue : epilogues)
            for (const std::int32_t out : {8, 128})
              for (const std::int32_t in : {8, 128}) {
                Problem problem;
                problem.layout = layout;
                problem.batch = convolution[0] == 'n' ? 16 : 2;
                problem.block = {out, in};
                compute_in(problem, type.dtype, type.result);
                problem.math = type.math;
                problem.operation = operation;
                problem.order = order;
                problem.epilogue = parse_epilogue(epilogue);
                problem.convolution = parse_convolution(convolution);
                problem.bias_gradient = operation == Operation::grad_weight && problem.ieee();
                if (problem.epilogue.edge_bias && problem.math == Math::tf32) continue;  // two reasons
                try {
                  validate(problem);
                } catch (const Error&) {
                  continue;  // of no target
                }
                use(problem);
              }
}

/// As `refusal`, before a plan is chosen: that others have one is a test of autotune/cuda/defaults.
std::string refusal_without_plan(const Asked& asked) {
  if (asked.target.kind == Target::Kind::cpu) return refusal(asked);
  try {
    std::visit([&](const auto& computed) { cuda::validate(computed, asked.target); },
               computed_by(asked.problem, asked.target));
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void check_refusals(const char* name, std::size_t least) {
  const Target target = Target::parse(name);
  std::size_t refused = 0;
  for_each_problem([&](const Problem& problem) {
    const Asked asked{problem, target};
    const std::string message = refusal_without_plan(asked);
    if (message.empty()) return;
    ++refused;
    for (const char* const word : {"config", "variant", "stages", "tile_n", "warps"})
      CHECK(message.find(word) == std::string::npos);
    follow_all(asked, message);
  });
  CAPTURE(name);
  CHECK(refused >= least);
}

TEST_CASE("what no config computes is refused for the problem's own reason, and what would work works") {
  check_refusals("sm_75", 100);
  check_refusals("sm_80", 20);
  check_refusals("sm_90", 20);
#ifdef SPARSEKILN_CPU
  check_refusals("cpu:2", 20);
#endif
}

}  // namespace
}  // namespace sparsekiln
