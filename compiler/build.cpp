#include "compiler/build.h"

#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/backend.h"
#include "compiler/problem_kind.h"
#include "compiler/recipe.h"
#include "compiler/source.h"

namespace sparsekiln {
namespace {

Source emit(const Problem& problem, const Target& target, const Plan& plan) {
  validate(problem);
  if (plan.empty() || plan.back().up_to < problem.batch.bound())
    throw Error(ErrorKind::internal, fmt::format("the plan '{}' does not reach a batch of {}",
                                                 to_string(plan), to_string(problem.batch)));
  const Backend& backend = backend_of(target);
  const Computed computed = computed_by(problem, target);
  for (const RangedConfig& range : plan) backend.validate(computed, target, range.config);
  return backend.emit(computed, target, plan);
}

}  // namespace

struct ConfigCheck::Asked {
  const Backend& backend;
  Target target;
  Computed computed;
};

ConfigCheck::ConfigCheck(const Problem& problem, const Target& target) {
  validate(problem);
  asked_ = std::make_unique<const Asked>(Asked{backend_of(target), target, computed_by(problem, target)});
}

ConfigCheck::~ConfigCheck() = default;

std::string ConfigCheck::refusal(const Config& config) const {
  try {
    asked_->backend.validate(asked_->computed, asked_->target, config);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

Binary build_binary(const Problem& problem, const Target& target, const Plan& plan,
                    const Toolchain& toolchain) {
  Source source = emit(problem, target, plan);
  Binary binary;
  binary.target = target;
  binary.plan = plan;
  binary.operands = contract_of(problem, plan);
  binary.entries = std::move(source.entries);
  binary.data = std::move(source.data);
  binary.source = Digest::of(source.text);
  backend_of(target).compile(source, toolchain, binary);
  set_resources(binary);
  return binary;
}

std::string emit_source(const Problem& problem, const Target& target, const Plan& plan) {
  return emit(problem, target, plan).text;
}

}  // namespace sparsekiln
