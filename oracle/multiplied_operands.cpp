#include "oracle/multiplied_operands.h"

#include <algorithm>
#include <cstddef>

#include "compiler/activation.h"
#include "compiler/element.h"
#include "oracle/check_result.h"

namespace sparsekiln {
namespace {

void round_operands(const Spmm& problem, std::vector<double>& values) {
  if (problem.math == Math::tf32)
    std::transform(values.begin(), values.end(), values.begin(),
                   [](double value) { return rounded_to_tf32(static_cast<float>(value)); });
}

/// All features of one row.
void read_row(const Spmm& problem, const void* data, std::int64_t stride, std::int64_t row,
              std::vector<double>& to) {
  if (problem.channels_first()) {
    for (std::size_t k = 0; k < to.size(); ++k)
      to[k] = to_double(problem.dtype, data,
                        offset_in_images(row, static_cast<std::int64_t>(k), stride, problem.x_image()));
    return;
  }
  if (!problem.feature_major()) return to_double(problem.dtype, data, row * stride, to);
  for (std::size_t k = 0; k < to.size(); ++k)
    to[k] = to_double(problem.dtype, data, static_cast<std::int64_t>(k) * stride + row);
}

}  // namespace

void read_x(const Spmm& problem, const HostOperands& operands, std::int64_t row, std::vector<double>& to,
            std::vector<double>& scratch) {
  read_row(problem, operands.x, operands.x_stride, row, to);
  if (problem.derivative != Activation::none) {
    scratch.resize(to.size());
    read_row(problem, operands.z, operands.z_stride, row, scratch);
    const auto derivative = row_of(problem.derivative).derivative;
    for (std::size_t k = 0; k < to.size(); ++k)
      to[k] = rounded(to[k] * derivative(scratch[k]), problem.dtype);
  }
  round_operands(problem, to);
}

bool read_block(const Spmm& problem, const HostOperands& operands, std::int32_t block,
                std::vector<double>& to) {
  const double block_scale =
      operands.block_scales == nullptr
          ? 1
          : to_double(problem.sum_type(), operands.block_scales, problem.block_scale_map.of(block));
  if (block_scale == 0) return false;
  to_double(problem.dtype, operands.w,
            static_cast<std::int64_t>(block) * static_cast<std::int64_t>(to.size()), to);
  if (operands.block_scales != nullptr)
    for (double& value : to) value = rounded(value * block_scale, problem.dtype);
  round_operands(problem, to);
  return true;
}

}  // namespace sparsekiln
