#include "runtime/cuda/tensor_maps.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "runtime/cuda/launch_plan.h"

namespace sparsekiln::cuda {
namespace {

constexpr int kFirstCapability = 90;
constexpr std::int64_t kUnit = 16;  // bytes that strides are multiples of

void check_support(const Context& context, const std::string& kernel) {
  const DeviceInfo& device = context.device();
  if (device.compute_capability < kFirstCapability)
    throw Error(ErrorKind::driver,
                fmt::format("the kernel {} takes tensor maps, which sm_90 and later have, and {} is sm_{}; "
                            "compile for this device",
                            kernel, device.name, device.compute_capability));
  if (context.api().tensor_map_encode_tiled == nullptr)
    throw Error(ErrorKind::driver,
                fmt::format("the kernel {} takes tensor maps, made by cuTensorMapEncodeTiled, which {} does "
                            "not have; NVIDIA's driver for CUDA 12.0 or later would work",
                            kernel, printable(context.driver().path().string())));
}

CUtensorMapDataType type_of(const TensorMap& map) {
  if (map.to_tf32) return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  constexpr std::pair<DType, CUtensorMapDataType> kTypes[] = {
      {DType::f16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16}, {DType::bf16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16},
      {DType::f32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32}, {DType::f64, CU_TENSOR_MAP_DATA_TYPE_FLOAT64},
      {DType::e4m3, CU_TENSOR_MAP_DATA_TYPE_UINT8},  {DType::e5m2, CU_TENSOR_MAP_DATA_TYPE_UINT8},
      {DType::i8, CU_TENSOR_MAP_DATA_TYPE_UINT8},
  };
  for (const auto& [ours, theirs] : kTypes)
    if (ours == map.type) return theirs;
  throw Error(ErrorKind::internal, fmt::format("a tensor map of {}, which has none", name(map.type)));
}

CUtensorMapSwizzle swizzle_of(std::int32_t bytes) {
  switch (bytes) {
    case 0:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
    case 32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    default:
      throw Error(ErrorKind::internal, fmt::format("a tensor map swizzled within {} bytes", bytes));
  }
}

CUtensorMapL2promotion l2_promotion_of(std::int32_t bytes) {
  switch (bytes) {
    case 0:
      return CU_TENSOR_MAP_L2_PROMOTION_NONE;
    case 64:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_64B;
    case 128:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
    case 256:
      return CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
    default:
      throw Error(ErrorKind::internal, fmt::format("a tensor map that fetches {} bytes into L2", bytes));
  }
}

template <typename Value>
Value member_at(const Launch& launch, std::uint16_t offset) {
  Value value;
  const auto* base = reinterpret_cast<const std::byte*>(static_cast<const LaunchOperands*>(&launch));
  std::memcpy(&value, base + offset, sizeof value);
  return value;
}

}  // namespace

TensorMaps::TensorMaps(const Context& context, const Entry& entry) : kernel_(entry.passes.front()) {
  const auto taken = std::count(entry.arguments.begin(), entry.arguments.end(), Argument::tensor_map);
  if (entry.tensor_maps.size() > kMostTensorMaps ||
      taken != static_cast<std::ptrdiff_t>(entry.tensor_maps.size()))
    throw Error(ErrorKind::internal, fmt::format("the kernel {} takes {} tensor maps and comes with {}",
                                                 kernel_, taken, entry.tensor_maps.size()));
  if (entry.tensor_maps.empty()) return;
  check_support(context, kernel_);
  for (const TensorMap& map : entry.tensor_maps) {
    const std::optional<Argument> stride = stride_of(map.operand);
    if (!is_pointer(map.operand) || (map.stride == 0 && !stride))
      throw Error(ErrorKind::internal, fmt::format("a tensor map of the kernel {} is of no matrix", kernel_));
    const auto of_pair = static_cast<std::uint16_t>(map.pair * sizeof(LaunchPairs::Pair));
    recipes_.push_back({map, type_of(map), static_cast<std::uint16_t>(offset_of(map.operand) + of_pair),
                        offset_of(stride.value_or(Argument::x_stride))});
  }
}

TensorMaps::Dimensions TensorMaps::dimensions_of(const TensorMap& map, const Matrix& matrix) {
  const auto length = static_cast<cuuint32_t>(map.box_length);
  const auto rows = static_cast<cuuint32_t>(map.box_rows);
  if (map.image != std::array<std::int32_t, 3>{}) {
    const auto [depth, height, width] = map.image;
    const cuuint64_t line = width * matrix.row_bytes;
    const auto step = [&](std::size_t i) { return static_cast<cuuint32_t>(map.step_image[i]); };
    // What a box reaches over: a copy takes every step-th position of that.
    const auto box = [&](std::size_t i) { return static_cast<cuuint32_t>(map.box_image[i]) * step(i); };
    return {kMostDimensions,
            {matrix.extents[0], static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(height),
             static_cast<cuuint64_t>(depth), matrix.extents[1]},
            {matrix.row_bytes, line, height * line, depth * height * line},
            {length, box(2), box(1), box(0), rows},
            {1, step(2), step(1), step(0), 1}};
  }
  if (map.interleave == 0)
    return {2, {matrix.extents[0], matrix.extents[1]}, {matrix.row_bytes}, {length, rows}};
  // Halves, lanes and pairs of a lane's rows are dimensions of their own, in the order of their places.
  const auto interleave = static_cast<cuuint32_t>(map.interleave);
  return {kMostDimensions,
          {matrix.extents[0], 2, 4, interleave / 2, matrix.extents[1] / (4 * interleave)},
          {matrix.row_bytes, interleave * matrix.row_bytes, 2 * matrix.row_bytes,
           4 * interleave * matrix.row_bytes},
          {length, 2, 4, interleave / 2, rows / (4 * interleave)}};
}

TensorMaps::Matrix TensorMaps::matrix_of(const Recipe& recipe, const Launch& launch) {
  const TensorMap& map = recipe.map;
  const auto extent = [&](std::int64_t fixed) {
    return static_cast<cuuint64_t>(fixed == 0 ? launch.n : fixed);
  };
  const std::int64_t stride = map.stride == 0 ? member_at<std::int64_t>(launch, recipe.stride) : map.stride;
  return {member_at<void*>(launch, recipe.address),
          {extent(map.row_length), extent(map.rows)},
          static_cast<cuuint64_t>(stride) * size_of(map.type)};
}

void TensorMaps::encode(const Context& context, const Launch& launch, std::span<CUtensorMap> maps) const {
  for (std::size_t i = 0; i < recipes_.size(); ++i) {
    const Matrix matrix = matrix_of(recipes_[i], launch);
    if (matrix.extents[0] == 0 || matrix.extents[1] == 0 || matrix.address == nullptr) {
      maps[i] = {};
      continue;
    }
    const CUresult result = encode(context, recipes_[i], matrix, maps[i]);
    if (result != CUDA_SUCCESS) [[unlikely]]
      fail(context, result, i, matrix, launch.n);
  }
}

CUresult TensorMaps::encode(const Context& context, const Recipe& recipe, const Matrix& matrix,
                            CUtensorMap& map) const {
  const Dimensions dimensions = dimensions_of(recipe.map, matrix);
  return context.api().tensor_map_encode_tiled(
      &map, recipe.type, dimensions.count, matrix.address, dimensions.extents.data(),
      dimensions.strides.data(), dimensions.box.data(), dimensions.steps.data(),
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(recipe.map.swizzle_bytes),
      l2_promotion_of(recipe.map.l2_bytes), CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

void TensorMaps::fail(const Context& context, CUresult result, std::size_t index, const Matrix& matrix,
                      std::int64_t n) const {
  const TensorMap& map = recipes_[index].map;
  context.driver().fail(
      result,
      fmt::format("making tensor map {} of the kernel {} for a batch of {} on {} ({} rows of {} {} at {}, {} "
                  "bytes apart, in boxes of {} x {}; addresses and distances are multiples of {} bytes)",
                  index, kernel_, n, context.device().name, matrix.extents[1], matrix.extents[0],
                  name(map.type), matrix.address, matrix.row_bytes, map.box_rows, map.box_length, kUnit));
}

}  // namespace sparsekiln::cuda
