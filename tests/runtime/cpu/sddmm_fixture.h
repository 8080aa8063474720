#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/compile.h>

#include "compiler/block_runs.h"
#include "compiler/cpu/sddmm.h"
#include "oracle/sddmm_check.h"
#include "runtime/open_device.h"
#include "runtime/resident_sddmm.h"
#include "tests/runtime/cpu/remembered_object.h"

namespace sparsekiln::cpu {

/// Config::stages of a gradient of the weight.
inline constexpr std::int32_t kEachForItself = 1;
inline constexpr std::int32_t kPackedOnce = 2;

inline Config sddmm_config(std::int32_t chunk, std::int32_t stages, std::int32_t rows = 1,
                           std::int32_t split = 1) {
  Config config;
  config.variant = Variant::vector;
  config.tile_n = chunk;
  config.stages = stages;
  config.rows = rows;
  config.split = split;
  config.warps = 1;
  config.table = TableForm::global;
  return config;
}

inline Problem gradient_of(Layout layout, BlockShape block, std::int64_t n, DType dtype = DType::f32,
                           DType out_dtype = DType::f32) {
  Problem problem;
  problem.operation = Operation::grad_weight;
  problem.layout = std::move(layout);
  problem.block = block;
  problem.batch = Batch::up_to(n);
  problem.dtype = dtype;
  problem.out_dtype = out_dtype;
  return problem;
}

/// Emitted for `target`, compiled for `assembled`: a lower level splits the vectors.
inline Kernel sddmm_kernel(const Problem& problem, const Target& target, const Config& config,
                           const Target& assembled) {
  const Sddmm gradient(problem);
  const Plan plan = {{problem.batch.bound(), config}};
  validate(gradient, target, config);
  const Source source = emit(gradient, target, plan, {make_block_runs(gradient, target, config)});
  auto binary = std::make_shared<Binary>();
  binary->target = assembled;
  binary->plan = plan;
  static_cast<Computation&>(binary->operands) = problem;
  binary->operands.in_features = problem.in_features();
  binary->operands.out_features = problem.out_features();
  binary->operands.blocks = problem.layout.blocks();
  binary->entries = source.entries;
  binary->code = remembered_object(source.text, assembled);
  return load(binary);
}
inline Kernel sddmm_kernel(const Problem& problem, const Target& target, const Config& config) {
  return sddmm_kernel(problem, target, config, target);
}

/// What a launch on `inputs` leaves.
inline SddmmOutputs launched(const Kernel& kernel, const Problem& problem, const SddmmInputs& inputs) {
  const Sddmm gradient(problem);
  SddmmOutputs outputs(gradient, inputs);
  ResidentSddmm resident(gradient, sparsekiln::open_device("cpu"), inputs, outputs);
  kernel(resident[0]);
  resident.fetch(outputs);
  return outputs;
}

inline void check_gradient(const Kernel& kernel, const Problem& problem, const SddmmLaunch& launch,
                           Inputs kind) {
  const Sddmm gradient(problem);
  const SddmmInputs inputs = make_inputs(gradient, launch, kind, 1 + static_cast<std::uint64_t>(launch.n));
  const CheckResult check_result = check(gradient, inputs, launched(kernel, problem, inputs), Adder::float32);
  CAPTURE(kernel.binary().target.to_string());
  CAPTURE(to_string(kernel.binary().plan));
  CAPTURE(name(problem.dtype));
  CAPTURE(name(problem.out_dtype));
  CAPTURE(to_string(problem.block));
  CAPTURE(launch.n);
  CAPTURE(launch.pairs);
  CAPTURE(launch.padding);
  CAPTURE(launch.beta);
  CHECK_MESSAGE(check_result.ok, check_result.first_failure);
}

/// All bytes that a launch leaves, poison included.
inline std::vector<std::byte> bytes_of(const SddmmOutputs& outputs) {
  std::vector<std::byte> bytes;
  for (const PoisonedOutput* output : {&outputs.dw, &outputs.dbias, &outputs.dblock_scales})
    bytes.insert(bytes.end(), output->image().begin(), output->image().end());
  return bytes;
}

}  // namespace sparsekiln::cpu
