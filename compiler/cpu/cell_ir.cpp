#include "compiler/cpu/cell_ir.h"

#include <cstddef>

#include <llvm/IR/Constants.h>

#include "compiler/cpu/activation_ir.h"
#include "compiler/cpu/call.h"

namespace sparsekiln::cpu {

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

CellIr::Value* CellIr::ahead(Value* stride, std::int64_t gate) {
  Value* features = v_.times(features_, gate);
  return form_.feature_major ? ir_.CreateMul(features, stride) : features;
}

CellIr::Value* CellIr::at(const Matrix& matrix, Value* major, Value* minor, std::int64_t gate) {
  Value* first = v_.plus(ir_.CreateMul(major, matrix.stride), minor);
  return v_.at(matrix.data, v_.times(v_.plus(first, ahead(matrix.stride, gate)),
                                     static_cast<std::int64_t>(size_of(matrix.type))));
}

/// 1 - a·b.
CellIr::Value* CellIr::one_minus(Value* a, Value* b) {
  return v_.multiply_add(ir_.CreateFNeg(a), b, llvm::ConstantFP::get(a->getType(), 1));
}

void CellIr::forward(Gates z, Value* major, Value* minor, Value* y, const Access& access) {
  for (std::size_t gate = 0; gate < z.size(); ++gate) {
    const auto number = static_cast<std::int64_t>(gate);
    Value* projection = access.load(projection_.type, at(projection_, major, minor, number));
    z[gate] =
        activate(v_, gate == 2 ? Activation::tanh : Activation::sigmoid, ir_.CreateFAdd(z[gate], projection));
    if (form_.keep) access.store(activations_.type, z[gate], at(activations_, major, minor, number));
  }
  const auto& [i, f, g, o] = z;
  Value* c_before = access.load(c_before_.type, at(c_before_, major, minor));
  Value* c = v_.multiply_add(f, c_before, ir_.CreateFMul(i, g));
  access.store(c_.type, c, at(c_, major, minor));
  access.store(form_.gates, ir_.CreateFMul(o, activate(v_, Activation::tanh, c)), y);
}

void CellIr::backward(Value* dh, Value* major, Value* minor, Value* y, Value* y_stride,
                      const Access& access) {
  Gates gates{};
  for (std::size_t gate = 0; gate < gates.size(); ++gate)
    gates[gate] =
        access.load(activations_.type, at(activations_, major, minor, static_cast<std::int64_t>(gate)));
  const auto& [i, f, g, o] = gates;
  const auto load = [&](const Matrix& matrix) { return access.load(matrix.type, at(matrix, major, minor)); };
  Value* t = activate(v_, Activation::tanh, load(c_));
  Value* d = v_.multiply_add(ir_.CreateFMul(dh, o), one_minus(t, t), load(dc_));
  Value* one = llvm::ConstantFP::get(dh->getType(), 1);
  const auto slope = [&](Value* gate) { return ir_.CreateFMul(gate, ir_.CreateFSub(one, gate)); };
  const Gates dz{ir_.CreateFMul(ir_.CreateFMul(d, g), slope(i)),
                 ir_.CreateFMul(ir_.CreateFMul(d, load(c_before_)), slope(f)),
                 ir_.CreateFMul(ir_.CreateFMul(d, i), one_minus(g, g)),
                 ir_.CreateFMul(ir_.CreateFMul(dh, t), slope(o))};
  for (std::size_t gate = 0; gate < dz.size(); ++gate)
    access.store(form_.gates, dz[gate],
                 v_.at(y, v_.times(ahead(y_stride, static_cast<std::int64_t>(gate)),
                                   static_cast<std::int64_t>(size_of(form_.gates)))));
  access.store(dc_before_.type, ir_.CreateFMul(d, f), at(dc_before_, major, minor));
}

}  // namespace sparsekiln::cpu
