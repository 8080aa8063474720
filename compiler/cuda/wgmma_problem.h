#pragma once

#include <cstdint>
#include <string_view>

#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

namespace sparsekiln::cuda {

/// Throws `invalid_argument` unless variant wgmma `works`: why it does not, and that variant mma would.
void require_wgmma(bool works, std::string_view why);

/// The number of a type in ptx::WgmmaOperands (templates/ptx_wgmma.cuh).
[[nodiscard]] std::int32_t wgmma_operands_of(DType type);

/// Throws `invalid_argument` where operands are not as the copy engine and wgmma read them, whatever blocks
/// they have: on other targets, and with block scales, derivatives and images.
void require_wgmma_operands(const Computation& problem, const Target& target);

/// Throws `invalid_argument` where no family of variant wgmma computes a problem: on other targets, and where
/// operands are not as the copy engine and wgmma read them. `block` is the weight's.
void require_wgmma(const Computation& problem, BlockShape block, const Target& target);

}  // namespace sparsekiln::cuda
