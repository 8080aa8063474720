#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sparsekiln/problem.h>
#include <sparsekiln/tensor_view.h>

namespace sparsekiln {

/// Null or not a multiple of `alignment`: throws `invalid_argument`.
void check_address(std::string_view name, const void* address, std::int64_t alignment);
/// Whether the kernel takes a batch of n; `refuse_batch` says why not.
[[nodiscard]] bool takes_batch(std::int64_t n, Batch batch);
[[noreturn]] void refuse_batch(std::string_view name, std::int64_t n, Batch batch);
/// "[4, 32, 16]": the first `rank` of them.
[[nodiscard]] std::string list_of(const std::int64_t (&extents)[kMaxRank], std::int32_t rank);
[[nodiscard]] std::string shape_of(const TensorView& view);

}  // namespace sparsekiln
