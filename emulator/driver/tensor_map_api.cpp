#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "emulator/driver/call.h"
#include "emulator/driver/devices.h"
#include "emulator/machine/tensor_map.h"

// Tensor maps (CUDA Driver API 13.0, section 6.30). Interleaved layouts, packed types, swizzles of larger
// chunks and im2col modes are CUDA_ERROR_NOT_SUPPORTED: they are not emulated.

using namespace sparsekiln::driver;
using namespace sparsekiln::emulator;

namespace {

constexpr int kFirstCapability = 90;

std::optional<TensorElement> element_of(CUtensorMapDataType type) {
  static constexpr std::pair<CUtensorMapDataType, TensorElement> kElements[] = {
      {CU_TENSOR_MAP_DATA_TYPE_UINT8, TensorElement::u8},
      {CU_TENSOR_MAP_DATA_TYPE_UINT16, TensorElement::u16},
      {CU_TENSOR_MAP_DATA_TYPE_UINT32, TensorElement::u32},
      {CU_TENSOR_MAP_DATA_TYPE_INT32, TensorElement::s32},
      {CU_TENSOR_MAP_DATA_TYPE_UINT64, TensorElement::u64},
      {CU_TENSOR_MAP_DATA_TYPE_INT64, TensorElement::s64},
      {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, TensorElement::f16},
      {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, TensorElement::f32},
      {CU_TENSOR_MAP_DATA_TYPE_FLOAT64, TensorElement::f64},
      {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, TensorElement::bf16},
      {CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ, TensorElement::f32_ftz},
      {CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, TensorElement::tf32},
      {CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ, TensorElement::tf32_ftz},
  };
  for (const auto& [of_cuda, element] : kElements)
    if (of_cuda == type) return element;
  return std::nullopt;
}

constexpr int kTypes = CUDA_VERSION >= 12080 ? 16 : 13;
constexpr int kSwizzleModes = CUDA_VERSION >= 12080 ? 7 : 4;
constexpr int kPromotions = CU_TENSOR_MAP_L2_PROMOTION_L2_256B + 1;

template <class Enumeration>
bool is_below(Enumeration value, int end) {
  return static_cast<int>(value) >= 0 && static_cast<int>(value) < end;
}

bool aligned(const CUtensorMap* map) {
  return map != nullptr && reinterpret_cast<std::uintptr_t>(map) % kTensorMapAlignment == 0;
}

/// `body()` on a device that has tensor maps.
template <class Body>
CUresult with_tensor_maps(Body body) {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    if (devices()[context->device].compute_capability < kFirstCapability) return CUDA_ERROR_NOT_SUPPORTED;
    return body();
  });
}

void store(CUtensorMap& to, const TensorMapBytes& bytes) {
  static_assert(sizeof to == kTensorMapBytes);
  std::memcpy(&to, bytes.data(), bytes.size());
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* made, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  return with_tensor_maps([&]() -> CUresult {
    if (!aligned(made) || rank == 0 || rank > kMostDimensions || sizes == nullptr || box == nullptr ||
        steps == nullptr || (strides == nullptr && rank > 1) || !is_below(type, kTypes) ||
        !is_below(interleave, kInterleaves) || !is_below(swizzle, kSwizzleModes) ||
        !is_below(promotion, kPromotions) || !is_below(fill, kFills))
      return CUDA_ERROR_INVALID_VALUE;
    const std::optional<TensorElement> element = element_of(type);
    if (!element || !is_below(swizzle, kSwizzles)) return CUDA_ERROR_NOT_SUPPORTED;

    TensorMap map;
    map.address = reinterpret_cast<std::uintptr_t>(address);
    map.rank = rank;
    map.element = *element;
    map.interleave = static_cast<TensorInterleave>(interleave);
    map.swizzle = static_cast<Swizzle>(swizzle);
    map.fill = static_cast<TensorFill>(fill);
    std::copy_n(sizes, rank, map.sizes.begin());
    if (rank > 1) std::copy_n(strides, rank - 1, map.strides.begin());
    std::copy_n(box, rank, map.box.begin());
    std::copy_n(steps, rank, map.steps.begin());
    if (!problem_of(map).empty()) return CUDA_ERROR_INVALID_VALUE;
    if (map.interleave != TensorInterleave::none) return CUDA_ERROR_NOT_SUPPORTED;
    store(*made, encode(map));
    return CUDA_SUCCESS;
  });
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* changed, void* address) {
  return with_tensor_maps([&]() -> CUresult {
    if (!aligned(changed)) return CUDA_ERROR_INVALID_VALUE;
    TensorMapBytes bytes;
    std::memcpy(bytes.data(), changed, bytes.size());
    std::string why;
    std::optional<TensorMap> map = decode_tensor_map(bytes, why);
    if (!map) return CUDA_ERROR_INVALID_VALUE;
    map->address = reinterpret_cast<std::uintptr_t>(address);
    if (!problem_of(*map).empty()) return CUDA_ERROR_INVALID_VALUE;
    store(*changed, encode(*map));
    return CUDA_SUCCESS;
  });
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const int*, const int*, cuuint32_t, cuuint32_t,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return with_tensor_maps([] { return CUDA_ERROR_NOT_SUPPORTED; });
}
