#pragma once

#include <cstdint>
#include <functional>

#include <llvm/IR/Value.h>
#include <sparsekiln/problem.h>

#include "compiler/cpu/vector_ir.h"
#include "compiler/operand_table.h"

namespace sparsekiln::cpu {

/// How code reads what an epilogue takes, for the outputs of one vector: all as vectors of as many numbers,
/// in the type of the sums.
struct EpilogueAccess {
  using Value = llvm::Value;
  std::function<Value*(std::int64_t weight)> sum;
  std::function<Value*(const OperandRow& row)> operand;
  std::function<Value*()> alpha;  ///< with Epilogue::scale, as the following
  std::function<Value*()> beta;
  std::function<Value*()> reads_y;  ///< whether beta is not 0
  std::function<Value*()> y;        ///< what it holds before
};

/// The outputs as they are stored: the formula of Epilogue in include/sparsekiln/problem.h, but without cells
/// and layer normalisation.
[[nodiscard]] llvm::Value* finished(VectorIr& v, const Epilogue& epilogue, const EpilogueAccess& access);

}  // namespace sparsekiln::cpu
