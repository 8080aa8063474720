#include "compiler/cpu/cell_ir.h"

#include <llvm/IR/Constants.h>

#include "compiler/cpu/activation_ir.h"
#include "compiler/cpu/call.h"

namespace sparsekiln::cpu {

namespace {

/// 1 - a·b.
llvm::Value* one_minus(VectorIr& v, llvm::Value* a, llvm::Value* b) {
  return v.multiply_add(v.ir.CreateFNeg(a), b, llvm::ConstantFP::get(a->getType(), 1));
}

}  // namespace

CellState state_of_cell(VectorIr& v, const CellGates& gates, llvm::Value* c_before) {
  const auto& [i, f, g, o] = gates;
  llvm::Value* c = v.multiply_add(f, c_before, v.ir.CreateFMul(i, g));
  return {c, v.ir.CreateFMul(o, activate(v, Activation::tanh, c))};
}

CellGradients gradients_of_cell(VectorIr& v, const CellGates& gates, llvm::Value* multiplier, llvm::Value* dh,
                                const CellMemory& memory) {
  const auto& [i, f, g, o] = gates;
  const auto product = [&](llvm::Value* a, llvm::Value* b) { return v.ir.CreateFMul(a, b); };
  llvm::Value* t = activate(v, Activation::tanh, memory.c);
  llvm::Value* d = v.multiply_add(product(dh, o), one_minus(v, t, t), memory.dc);
  llvm::Value* one = llvm::ConstantFP::get(dh->getType(), 1);
  const auto slope = [&](llvm::Value* gate) { return product(gate, v.ir.CreateFSub(one, gate)); };
  const auto multiplied = [&](llvm::Value* value) { return multiplier ? product(value, multiplier) : value; };
  return {{product(product(d, multiplied(g)), slope(i)), product(product(d, memory.c_before), slope(f)),
           product(multiplied(product(d, i)), one_minus(v, g, g)), product(product(dh, t), slope(o))},
          product(d, f)};
}

CellIr::Matrix CellIr::matrix(std::size_t offset, DType type, const char* name) {
  const std::size_t from = offsetof(Call, cell) + offset;
  return {type, v_.argument(ir_.getPtrTy(), from + offsetof(LaunchCell::Matrix, data), name),
          v_.argument(ir_.getInt64Ty(), from + offsetof(LaunchCell::Matrix, stride), "stride")};
}

void CellIr::begin() {
  features_ =
      v_.argument(ir_.getInt64Ty(), offsetof(Call, cell) + offsetof(LaunchCell, features), "features");
  c_before_ = matrix(offsetof(LaunchCell, c_before), form_.state, "c_before");
  c_ = matrix(offsetof(LaunchCell, c), form_.state, "c");
  if (form_.forward) projection_ = matrix(offsetof(LaunchCell, projection), form_.gates, "projection");
  if (!form_.forward || form_.keep)
    activations_ = matrix(offsetof(LaunchCell, activations), form_.gates, "activations");
  if (form_.forward) return;
  dc_ = matrix(offsetof(LaunchCell, dc), form_.state, "dc");
  dc_before_ = matrix(offsetof(LaunchCell, dc_before), form_.state, "dc_before");
}

CellIr::Value* CellIr::ahead(Value* stride, std::int64_t gate) const {
  Value* features = v_.times(features_, gate);
  return form_.feature_major ? ir_.CreateMul(features, stride) : features;
}

CellIr::Value* CellIr::at(const Matrix& matrix, Value* major, Value* minor, std::int64_t gate) const {
  Value* first = v_.plus(ir_.CreateMul(major, matrix.stride), minor);
  return v_.at(matrix.data, v_.times(v_.plus(first, ahead(matrix.stride, gate)),
                                     static_cast<std::int64_t>(size_of(matrix.type))));
}

void CellIr::forward(Gates z, Value* major, Value* minor, Value* y, const Access& access) const {
  for (std::size_t gate = 0; gate < z.size(); ++gate) {
    const auto number = static_cast<std::int64_t>(gate);
    Value* projection = access.load(projection_.type, at(projection_, major, minor, number));
    z[gate] = activate(v_, gate == kCandidate ? Activation::tanh : Activation::sigmoid,
                       ir_.CreateFAdd(z[gate], projection));
    if (form_.keep) access.store(activations_.type, z[gate], at(activations_, major, minor, number));
  }
  const CellState state = state_of_cell(v_, z, access.load(c_before_.type, at(c_before_, major, minor)));
  access.store(c_.type, state.c, at(c_, major, minor));
  access.store(form_.gates, state.h, y);
}

void CellIr::backward(Value* dh, Value* major, Value* minor, Value* y, Value* y_stride,
                      const Access& access) const {
  Gates gates{};
  for (std::size_t gate = 0; gate < gates.size(); ++gate)
    gates[gate] =
        access.load(activations_.type, at(activations_, major, minor, static_cast<std::int64_t>(gate)));
  const auto load = [&](const Matrix& matrix) { return access.load(matrix.type, at(matrix, major, minor)); };
  const auto& [dz, dc_before] = gradients_of_cell(
      v_, gates, nullptr, dh, {.c_before = load(c_before_), .c = load(c_), .dc = load(dc_)});
  for (std::size_t gate = 0; gate < dz.size(); ++gate)
    access.store(form_.gates, dz[gate],
                 v_.at(y, v_.times(ahead(y_stride, static_cast<std::int64_t>(gate)),
                                   static_cast<std::int64_t>(size_of(form_.gates)))));
  access.store(dc_before_.type, dc_before, at(dc_before_, major, minor));
}

}  // namespace sparsekiln::cpu
