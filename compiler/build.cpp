#include "compiler/build.h"

#include <utility>
#include <variant>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/attach.h"
#include "compiler/block_runs.h"
#include "compiler/cuda/emit.h"
#include "compiler/cuda/nvrtc.h"
#include "compiler/cuda/resources.h"
#include "compiler/cuda/sddmm.h"
#include "compiler/problem_kind.h"
#include "compiler/schedule.h"
#include "compiler/source.h"
#ifdef SPARSEKILN_CPU
#include "compiler/cpu/emit.h"
#include "compiler/cpu/object.h"
#include "compiler/cpu/sddmm.h"
#endif

namespace sparsekiln {
namespace {

[[noreturn, maybe_unused]] void refuse_cpu() {
  throw Error(
      ErrorKind::invalid_argument,
      "target cpu: this build of Sparsekiln has no LLVM (meson option cpu); a CUDA target would work");
}

template <class Kind>
void validate(const Kind& computed, const Target& target, const Config& config) {
  if (target.kind == Target::Kind::cuda) return cuda::validate(computed, target, config);
#ifdef SPARSEKILN_CPU
  cpu::validate(computed, target, config);
#else
  refuse_cpu();
#endif
}

template <class Kind, class Schedules>
Source write_source(const Kind& computed, const Target& target, const Plan& plan,
                    const Schedules& schedules) {
  if (target.kind == Target::Kind::cuda) return cuda::emit(computed, target, plan, schedules);
#ifdef SPARSEKILN_CPU
  return cpu::emit(computed, target, plan, schedules);
#else
  refuse_cpu();
#endif
}

Source emit(const Spmm& product, const Target& target, const Plan& plan) {
  std::vector<Schedule> schedules;
  for (std::size_t entry = 0; entry < plan.size(); ++entry) {
    const Config& config = plan[entry].config;
    validate(product, target, config);
    if (config.table == TableForm::attached) continue;
    schedules.push_back(make_schedule(product, target, config, scheduled_n(product.batch, plan, entry)));
  }
  return write_source(product, target, plan, schedules);
}

Source emit(const Sddmm& gradient, const Target& target, const Plan& plan) {
  std::vector<BlockRuns> schedules;
  for (const RangedConfig& range : plan) {
    validate(gradient, target, range.config);
    if (range.config.table == TableForm::attached) continue;
    schedules.push_back(make_block_runs(gradient, target, range.config));
  }
  return write_source(gradient, target, plan, schedules);
}

Source emit(const Problem& problem, const Target& target, const Plan& plan) {
  validate(problem);
  if (plan.empty() || plan.back().up_to < problem.batch.bound())
    throw Error(ErrorKind::internal, fmt::format("the plan '{}' does not reach a batch of {}",
                                                 to_string(plan), to_string(problem.batch)));
  return std::visit([&](const auto& computed) { return emit(computed, target, plan); }, computed_by(problem));
}

OperandContract contract_of(const Problem& problem, const Plan& plan) {
  OperandContract operands;
  static_cast<Computation&>(operands) = problem;
  if (!attached(plan)) {  // else the same for all layouts
    operands.in_features = problem.in_features();
    operands.out_features = problem.out_features();
    operands.blocks = problem.layout.blocks();
  }
  operands.packed = plan.front().config.packed;
  return operands;
}

void compile_cuda(Binary& binary, const Source& source, const Toolchain& toolchain) {
  const auto nvrtc = cuda::Nvrtc::find(toolchain, binary.target.arch);
  cuda::NvrtcOutput output = nvrtc->compile(source.text, binary.target.arch);
  binary.code = std::move(output.cubin);
  binary.ptx = std::move(output.ptx);
  binary.log = std::move(output.log);
  binary.compiler = nvrtc->name();
  binary.options = cuda::Nvrtc::options(binary.target.arch);
  for (Entry& entry : binary.entries)
    entry.resources = cuda::read_resources(binary.code, entry.passes.front(), binary.log);
}

}  // namespace

struct ConfigCheck::Asked {
  Target target;
  Computed computed;
};

ConfigCheck::ConfigCheck(const Problem& problem, const Target& target) {
  validate(problem);
  asked_ = std::make_unique<const Asked>(Asked{target, computed_by(problem)});
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
  const Source source = emit(problem, target, plan);
  Binary binary;
  binary.target = target;
  binary.plan = plan;
  binary.operands = contract_of(problem, plan);
  binary.entries = source.entries;
  binary.source = Digest::of(source.text);
  if (target.kind == Target::Kind::cuda) {
    compile_cuda(binary, source, toolchain);
    return binary;
  }
#ifdef SPARSEKILN_CPU
  binary.code = cpu::compile_object(source.text, target);
  binary.compiler = cpu::compiler_version();
  binary.options = target.arch;
  for (Entry& entry : binary.entries)
    entry.resources.code_bytes = static_cast<std::int64_t>(binary.code.size());
#endif
  return binary;
}

std::string emit_source(const Problem& problem, const Target& target, const Plan& plan) {
  return emit(problem, target, plan).text;
}

}  // namespace sparsekiln
