#pragma once

#include <cstdint>
#include <string_view>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

namespace sparsekiln::cuda {

/// What the templates call an operand type on tensor cores, templates/product.cuh; f32: by way of tf32.
[[nodiscard]] std::string_view product_of(DType type);
/// What they call an element type of y, templates/output.cuh.
[[nodiscard]] std::string_view output_of(DType type);
/// What they call an operand type that is read as floats, templates/load_batch_rows.cuh.
[[nodiscard]] std::string_view operand_of(DType type);
/// What they call an activation, templates/activation.cuh.
[[nodiscard]] std::string_view activation_of(Activation activation);
/// Throws `invalid_argument`, with what would work, where CUDA kernels do not compute with an element type.
void require_types(const Computation& problem, const Target& target);
/// Whether CUDA cores multiply a problem's operands: float32 with math ieee, and those of 8 bits that tensor
/// cores do not have, or of which blocks have less inputs than these take.
[[nodiscard]] bool on_cuda_cores(const Computation& problem, const Target& target);
/// The variant that computes what others refuse: simt on CUDA cores, otherwise mma.
[[nodiscard]] Variant fallback_variant(const Computation& problem, const Target& target);
/// The inputs that a block of a product must have for tensor cores to multiply operands of a type: an
/// instruction takes 32 bytes along k, of one block in a glu pair or an LSTM's cell, otherwise of two.
[[nodiscard]] std::int32_t least_inputs(const Computation& problem, DType type);
/// Throws `invalid_argument`, with what would work, where variant mma does not compute a problem: one in IEEE
/// float32, or one whose type the tensor cores of the target do not have.
void require_mma(const Computation& problem, const Target& target);
/// Throws `invalid_argument`, with what would work, where the target's tensor cores do not have the type.
void require_tensor_cores(const Computation& problem, const Target& target);

}  // namespace sparsekiln::cuda
