#include "compiler/cpu/epilogue_formula.h"

#include <string_view>

#include "compiler/cpu/activation_ir.h"

namespace sparsekiln::cpu {
namespace {

using Value = llvm::Value;

/// alpha · row_scale · sum + bias, or alpha · sum · edge_gain + edge_bias, of W or V.
Value* scaled(VectorIr& v, const Epilogue& epilogue, const EpilogueAccess& access, std::int64_t weight) {
  const auto operand = [&](std::string_view of_w, std::string_view of_v) {
    return access.operand(operand_row(weight == 0 ? of_w : of_v));
  };
  Value* sum = access.sum(weight);
  if (epilogue.edge_bias) {
    if (epilogue.scale) sum = v.ir.CreateFMul(access.alpha(), sum);
    Value* bias = operand("edge_bias", "");
    return v.multiply_add(sum, operand("edge_gain", ""), bias);
  }
  Value* bias = epilogue.bias ? operand("bias", "v_bias") : nullptr;
  Value* factor = epilogue.scale ? access.alpha() : nullptr;
  if (epilogue.row_scale) {
    Value* scale = operand("row_scale", "v_row_scale");
    factor = factor == nullptr ? scale : v.ir.CreateFMul(factor, scale);
  }
  if (factor == nullptr) return bias == nullptr ? sum : v.ir.CreateFAdd(sum, bias);
  return bias == nullptr ? v.ir.CreateFMul(factor, sum) : v.multiply_add(factor, sum, bias);
}

}  // namespace

Value* finished(VectorIr& v, const Epilogue& epilogue, const EpilogueAccess& access) {
  Value* result = activate(v, epilogue.activation, scaled(v, epilogue, access, 0));
  if (epilogue.glu) result = v.ir.CreateFMul(result, scaled(v, epilogue, access, 1));
  if (epilogue.residual) result = v.ir.CreateFAdd(result, access.operand(operand_row("residual")));
  if (!epilogue.scale) return result;
  return v.choose("old_y", access.reads_y(), result,
                  [&] { return v.multiply_add(access.beta(), access.y(), result); });
}

}  // namespace sparsekiln::cpu
