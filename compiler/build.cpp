#include "compiler/build.h"

#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/block_runs.h"
#include "compiler/cpu/emit.h"
#include "compiler/cpu/object.h"
#include "compiler/cpu/sddmm.h"
#include "compiler/cuda/emit.h"
#include "compiler/cuda/families.h"
#include "compiler/cuda/nvrtc.h"
#include "compiler/cuda/nvrtc_choice.h"
#include "compiler/cuda/sddmm.h"
#include "compiler/plan.h"
#include "compiler/problem_kind.h"
#include "compiler/recipe.h"
#include "compiler/schedule.h"
#include "compiler/source.h"

namespace sparsekiln {
namespace {

// Each kind of problem has schedules and emitters of its own, found by overload.

template <class Kind>
void validate(const Kind& computed, const Target& target, const Config& config) {
  if (target.kind == Target::Kind::cuda)
    cuda::validate(computed, target, config);
  else
    cpu::validate(computed, target, config);
}

template <class Kind>
Source emit(const Kind& computed, const Target& target, const Plan& plan) {
  for (const RangedConfig& range : plan) validate(computed, target, range.config);
  decltype(make_schedules(computed, target, plan)) schedules;
  if (!attached(plan)) schedules = make_schedules(computed, target, plan);
  return target.kind == Target::Kind::cuda ? cuda::emit(computed, target, plan, schedules)
                                           : cpu::emit(computed, target, plan, schedules);
}

Source emit(const Problem& problem, const Target& target, const Plan& plan) {
  validate(problem);
  if (plan.empty() || plan.back().up_to < problem.batch.bound())
    throw Error(ErrorKind::internal, fmt::format("the plan '{}' does not reach a batch of {}",
                                                 to_string(plan), to_string(problem.batch)));
  return std::visit([&](const auto& computed) { return emit(computed, target, plan); },
                    computed_by(problem, target));
}

void compile_cuda(Binary& binary, const Source& source, const Toolchain& toolchain) {
  const std::string arch = cuda::code_arch(binary.target, binary.plan);
  const auto nvrtc = cuda::find_nvrtc(toolchain, arch);
  cuda::NvrtcOutput output = nvrtc->compile(source.text, arch);
  binary.code = std::move(output.cubin);
  binary.ptx = std::move(output.ptx);
  binary.log = std::move(output.log);
  binary.compiler = nvrtc->name();
  binary.options = cuda::Nvrtc::options(arch);
}

void compile_cpu(Binary& binary, const Source& source) {
  binary.code = cpu::compile_object(source.text, binary.target);
  binary.compiler = cpu::compiler_version();
  binary.options = binary.target.arch;
}

}  // namespace

struct ConfigCheck::Asked {
  Target target;
  Computed computed;
};

ConfigCheck::ConfigCheck(const Problem& problem, const Target& target) {
  validate(problem);
  asked_ = std::make_unique<const Asked>(Asked{target, computed_by(problem, target)});
}

ConfigCheck::~ConfigCheck() = default;

std::string ConfigCheck::refusal(const Config& config) const {
  try {
    std::visit([&](const auto& computed) { validate(computed, asked_->target, config); }, asked_->computed);
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
  if (target.kind == Target::Kind::cuda)
    compile_cuda(binary, source, toolchain);
  else
    compile_cpu(binary, source);
  set_resources(binary);
  return binary;
}

std::string emit_source(const Problem& problem, const Target& target, const Plan& plan) {
  return emit(problem, target, plan).text;
}

}  // namespace sparsekiln
