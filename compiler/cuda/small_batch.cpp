#include "compiler/cuda/small_batch.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "compiler/cuda/family.h"
#include "compiler/cuda/refusal.h"
#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {

void validate_small_batch(const Spmm& problem, const Target& target, Variant variant) {
  const std::string_view self = name(variant);
  const std::string_view instead = name(fallback_variant(problem, target));
  if (problem.weights() > 1)
    refuse(fmt::format("variant {} multiplies with one weight, and epilogue {} has {}; variant {} would work",
                       self, to_string(problem.epilogue), problem.weights(), instead));
  if (problem.by_columns())
    refuse(fmt::format("variant {} computes forward, not {}; variant mma, or simt with f32, would work", self,
                       name(problem.operation)));
  if (problem.feature_major())
    refuse(fmt::format(
        "variant {} reads batch-major activations, not {}; variant mma, or simt with f32, would work", self,
        name(problem.order)));
  if (operand_of(problem.dtype).empty())
    refuse(fmt::format("variant {} does not read {}; variant {} would work", self, name(problem.dtype),
                       instead));
  if (problem.cut_in != 0 || problem.cut_out != 0)
    refuse(fmt::format("variant {} computes whole blocks, not {} to {} features; variant {} would work", self,
                       problem.in_features(), problem.out_features(), instead));
  if (problem.alignment != 16)
    refuse(fmt::format(
        "variant {} reads activations that are aligned to 16 bytes, not {}; variant {} would work", self,
        problem.alignment, instead));
  if (problem.gates) refuse(fmt::format("variant {} has no gates; variant {} would work", self, instead));
  if (!problem.ieee()) require_tensor_cores(problem, target);  // else by CUDA cores
  if (problem.gathers())
    refuse(fmt::format("variant {} computes linear layers, no convolutions; variant {} would work", self,
                       instead));
}

}  // namespace sparsekiln::cuda
