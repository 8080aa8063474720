#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/simt_shape.h"
#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorKind::invalid_argument, why); }

void validate(const Spmm& problem, const Target& target) {
  if (!problem.ieee()) require_tensor_cores(problem, target);  // what another variant would need
  if (problem.dtype != DType::f32 || problem.out_dtype != DType::f32)
    refuse(fmt::format("variant simt computes f32 to f32, not {} to {}; variant mma would work",
                       name(problem.dtype), name(problem.out_dtype)));
  if (problem.math != Math::ieee)
    refuse(fmt::format("variant simt computes with math ieee, not {}; variant mma would work",
                       name(problem.math)));
}

Instance instantiate(const Spmm& problem, const Target& target, const Config& config) {
  if (config.merge != 1)
    refuse(fmt::format(
        "variant simt multiplies any block in full; merge={} is for tensor cores, merge=1 would work",
        config.merge));
  const SimtShape shape = simt_shape(problem, target, config);
  Instance instance;
  instance.threads = shape.threads;
  instance.chunk.parts = problem.block.in / shape.chunk;
  instance.declarations = fmt::format(
      "  using Element = float;\n"
      "  using Output = sparsekiln::F32Output;\n"
      "  enum : int {{\n"
      "    tile_out = {},  // outputs a thread\n"
      "    stages = {},\n"
      "    chunk = {},  // k of one stage\n"
      "  }};\n"
      "  enum : bool {{ async_copy = {} }};\n",
      config.tile_out, config.stages, shape.chunk, shape.async_copy);
  return instance;
}

}  // namespace

const Family kSimt{Variant::simt, "spmm_simt", validate, instantiate};

}  // namespace sparsekiln::cuda
