#pragma once

#include <sparsekiln/problem.h>

#include "compiler/cpu/vector_ir.h"

namespace sparsekiln::cpu {

/// The activation of vectors of float32, in the very steps of templates/activation.cuh: where a level fuses
/// multiply-adds, the same bits as on any GPU; or of float64, in the same steps with longer polynomials. No
/// level calls into a library. A NaN stays a NaN.
[[nodiscard]] llvm::Value* activate(VectorIr& v, Activation activation, llvm::Value* z);

/// Its derivative at z; of relu at 0: 0.
[[nodiscard]] llvm::Value* derivative(VectorIr& v, Activation activation, llvm::Value* z);

}  // namespace sparsekiln::cpu
