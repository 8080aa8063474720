#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sparsekiln/problem.h>
#include <sparsekiln/tensor_view.h>

namespace sparsekiln {

/// Throws `invalid_argument` of this operand. Messages are made off the launch path.
[[noreturn, gnu::cold]] void refuse(std::string_view name, const std::string& why);
[[noreturn, gnu::cold]] void refuse_type(std::string_view name, DType is, DType wanted);
/// Refuses a view's rank and shape, and its strides: what `takes` names would fit.
[[noreturn, gnu::cold]] void refuse_shape(std::string_view name, const TensorView& is,
                                          const std::string& takes);
[[noreturn, gnu::cold]] void refuse_strides(std::string_view name, const TensorView& is,
                                            const std::string& takes);
/// Strides of a matrix, of a row and of an element, that a kernel does not take: rows have `least` elements,
/// at distances that are multiples of `unit`.
[[noreturn, gnu::cold]] void refuse_stride(std::string_view name, std::int64_t row, std::int64_t element,
                                           std::int64_t least, std::int64_t unit);
/// Null or not a multiple of `alignment`: throws `invalid_argument`.
void check_address(std::string_view name, const void* address, std::int64_t alignment);
/// Whether the kernel takes a batch of n; `refuse_batch` says why not.
[[nodiscard]] bool takes_batch(std::int64_t n, Batch batch);
[[noreturn, gnu::cold]] void refuse_batch(std::string_view name, std::int64_t n, Batch batch);
/// "[4, 32, 16]": the first `rank` of them.
[[nodiscard]] std::string list_of(const std::int64_t (&extents)[kMaxRank], std::int32_t rank);
[[nodiscard]] std::string shape_of(const TensorView& view);

/// An output overlaps an operand that is read; its own matrices overlap; or it overlaps another output.
[[noreturn, gnu::cold]] void refuse_overlap(std::string_view computed, std::string_view read);
[[noreturn, gnu::cold]] void refuse_itself(std::string_view computed);
[[noreturn, gnu::cold]] void refuse_shared(std::string_view computed, std::string_view other);

}  // namespace sparsekiln
