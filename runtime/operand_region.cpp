#include "runtime/operand_region.h"

#include <cstdlib>

namespace sparsekiln {

bool overlap(const Region& a, const Region& b) {
  if (a.empty() || b.empty()) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.begin);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.begin);
  if (a_begin + static_cast<std::uintptr_t>(a.bytes()) <= b_begin ||
      b_begin + static_cast<std::uintptr_t>(b.bytes()) <= a_begin)
    return false;
  if (a.stride_bytes != b.stride_bytes || a.rows == 1 || b.rows == 1) return true;
  const auto stride = a.stride_bytes;
  const auto apart = static_cast<std::int64_t>(b_begin - a_begin);
  const std::int64_t behind = (apart % stride + stride) % stride;  // of a's row, b's begins
  return behind < a.row_bytes || behind + b.row_bytes > stride;
}

Region Activation2D::region(std::int64_t features, bool feature_major) const {
  const auto bytes = static_cast<std::int64_t>(size_of(view->dtype));
  const std::int64_t rows = images ? n : feature_major ? features : batch_rows();
  const std::int64_t row = images ? features * positions : feature_major ? n : features;
  Region region{name, static_cast<const std::byte*>(view->data), rows, row * bytes, stride * bytes};
  if (matrices <= 1) return region;
  if (joins) {
    region.rows *= matrices;
    region.stride_bytes = joined_stride * bytes;
  } else {  // as one range: what is between the matrices must not be used by anything else
    const std::int64_t last = (matrices - 1) * std::abs(matrix_bytes) + region.bytes();
    const std::int64_t before = matrix_bytes < 0 ? (matrices - 1) * matrix_bytes : 0;
    region = {name, region.begin + before, 1, last, last};
  }
  return region;
}

bool Activation2D::apart(std::int64_t features, bool feature_major) const {
  if (matrices <= 1 || joins) return true;
  Activation2D one = *this;
  one.matrices = 1;
  const Region region = one.region(features, feature_major);
  const std::int64_t step = std::abs(matrix_bytes);
  return region.empty() || step >= region.bytes() ||
         (step >= region.row_bytes && (matrices - 1) * step + region.row_bytes <= region.stride_bytes);
}

}  // namespace sparsekiln
