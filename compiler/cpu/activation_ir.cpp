#include "compiler/cpu/activation_ir.h"

#include <array>

#include <llvm/IR/Intrinsics.h>

namespace sparsekiln::cpu {
namespace {

using Value = llvm::Value;

/// Vectors like one that is given, of float32 or float64. Names of functions are those of
/// templates/activation.cuh, which says where the numbers of float32 come from; exponentials and error
/// functions of float64 are the C library's (runtime/cpu/loaded_object.cpp gives them to the linker).
class Floats {
 public:
  Floats(VectorIr& v, Value* like)
      : v_(v), ir_(v.ir), type_(llvm::cast<llvm::FixedVectorType>(like->getType())) {}

  /// The constant, rounded to the type.
  [[nodiscard]] Value* all(double value) const { return llvm::ConstantFP::get(type_, value); }
  /// A constant that float32 has as templates/activation.cuh spells it, and float64 in full.
  [[nodiscard]] Value* all(float of_float32, double of_float64) const {
    return all(is_float64() ? of_float64 : double{of_float32});
  }
  [[nodiscard]] Value* absolute(Value* x) const { return ir_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }

  [[nodiscard]] Value* exp_of_negative(Value* t) const {
    if (is_float64()) return called("exp", t);
    // Rounded to the nearest integer by an addition: then the lowest bits are the integer's.
    constexpr float kOnes = 0x1.8p23F;
    constexpr std::uint32_t kBits = 0x4b400000;
    Value* shifted = ir_.CreateFAdd(ir_.CreateFMul(t, all(1.44269504F)), all(kOnes));
    Value* power = ir_.CreateSub(bits(shifted), words(kBits));
    Value* k = ir_.CreateFSub(shifted, all(kOnes));
    Value* r = v_.multiply_add(k, all(2.12194440e-4F), v_.multiply_add(k, all(-0.693359375F), t));
    constexpr std::array kRest = {8.368916e-3F, 4.1669533e-2F, 1.6666518e-1F, 4.9999988e-1F, 1.0F, 1.0F};
    Value* p = all(1.3751407e-3F);
    for (const float coefficient : kRest) p = v_.multiply_add(p, r, all(coefficient));
    Value* scale = ir_.CreateShl(ir_.CreateAdd(power, words(127)), words(23));
    Value* result = ir_.CreateFMul(p, ir_.CreateBitCast(scale, type_));
    return ir_.CreateSelect(ir_.CreateFCmpOLT(t, all(-87.0F)), all(0), result);
  }

  [[nodiscard]] Value* sigmoid(Value* t) const {
    Value* e = exp_of_negative(ir_.CreateFNeg(absolute(t)));
    Value* above = ir_.CreateSelect(ir_.CreateFCmpOLT(t, all(0)), e, all(1));
    return ir_.CreateFDiv(above, ir_.CreateFAdd(all(1), e));
  }

  struct Normal {
    Value* cdf;
    Value* density;
  };
  [[nodiscard]] Normal normal_cdf(Value* z) const {
    if (is_float64()) {
      Value* density = exp_of_negative(ir_.CreateFMul(all(-0.5), ir_.CreateFMul(z, z)));
      Value* tails = called("erfc", ir_.CreateFMul(z, all(-0.70710678118654752440)));  // -√½
      return {ir_.CreateFMul(all(0.5), tails), density};
    }
    Value* t = ir_.CreateFDiv(all(1), v_.multiply_add(absolute(z), all(0.25F), all(1)));
    constexpr std::array kRest = {-1.5011372e-1F, 2.9047611e-1F, -1.9922151e-1F, 1.9713987e-1F,
                                  3.4939222e-2F,  1.0321850e-1F, 9.8593190e-2F,  9.9792838e-2F};
    Value* p = all(2.5175435e-2F);
    for (const float coefficient : kRest) p = v_.multiply_add(p, t, all(coefficient));
    Value* density = exp_of_negative(ir_.CreateFMul(all(-0.5F), ir_.CreateFMul(z, z)));
    Value* tail = ir_.CreateFMul(ir_.CreateFMul(t, p), density);
    Value* below = ir_.CreateFCmpOLT(z, all(0));
    return {ir_.CreateSelect(below, tail, ir_.CreateFSub(all(1), tail)), density};
  }

  [[nodiscard]] Value* tanh_argument(Value* z) const {
    Value* cubic = v_.multiply_add(ir_.CreateFMul(z, z), all(0.044715F, 0.044715), all(1));
    return ir_.CreateFMul(ir_.CreateFMul(all(1.5957691F, 1.5957691216057307118), z), cubic);
  }

 private:
  [[nodiscard]] bool is_float64() const { return type_->getElementType()->isDoubleTy(); }
  /// A function of the C library, lane by lane.
  [[nodiscard]] Value* called(const char* name, Value* x) const {
    auto* of_double = llvm::FunctionType::get(ir_.getDoubleTy(), {ir_.getDoubleTy()}, false);
    const llvm::FunctionCallee function = v_.module.getOrInsertFunction(name, of_double);
    Value* result = llvm::PoisonValue::get(type_);
    for (unsigned lane = 0; lane < type_->getNumElements(); ++lane) {
      Value* one = ir_.CreateCall(function, {ir_.CreateExtractElement(x, std::uint64_t{lane})});
      result = ir_.CreateInsertElement(result, one, std::uint64_t{lane});
    }
    return result;
  }
  [[nodiscard]] Value* words(std::uint32_t value) const {
    return v_.splat(ir_.getInt32(value), static_cast<std::int32_t>(type_->getNumElements()));
  }
  [[nodiscard]] Value* bits(Value* x) const {
    return ir_.CreateBitCast(x, v_.ints(static_cast<std::int32_t>(type_->getNumElements())));
  }

  VectorIr& v_;
  llvm::IRBuilder<>& ir_;
  llvm::FixedVectorType* type_;
};

}  // namespace

Value* activate(VectorIr& v, Activation activation, Value* z) {
  auto& ir = v.ir;
  const Floats floats(v, z);
  switch (activation) {
    case Activation::none:
      return z;
    case Activation::relu:
      return ir.CreateSelect(ir.CreateFCmpOLE(z, floats.all(0)), floats.all(0), z);
    case Activation::gelu:
      return ir.CreateFMul(z, floats.normal_cdf(z).cdf);
    case Activation::gelu_tanh:
      return ir.CreateFMul(z, floats.sigmoid(floats.tanh_argument(z)));
    case Activation::silu:
      return ir.CreateFMul(z, floats.sigmoid(z));
  }
  return z;
}

Value* derivative(VectorIr& v, Activation activation, Value* z) {
  auto& ir = v.ir;
  const Floats floats(v, z);
  switch (activation) {
    case Activation::none:
      break;
    case Activation::relu:
      return ir.CreateSelect(ir.CreateFCmpOGT(z, floats.all(0)), floats.all(1), floats.all(0));
    case Activation::gelu: {
      const auto [cdf, density] = floats.normal_cdf(z);
      return v.multiply_add(ir.CreateFMul(z, floats.all(0.39894228F, 0.39894228040143267794)), density,
                            cdf);  // 1 / √(2π)
    }
    case Activation::gelu_tanh: {
      Value* s = floats.sigmoid(floats.tanh_argument(z));
      Value* rise = ir.CreateFMul(ir.CreateFMul(z, s), ir.CreateFSub(floats.all(1), s));
      Value* inner = v.multiply_add(ir.CreateFMul(z, z), floats.all(0.134145F, 0.134145), floats.all(1));
      return v.multiply_add(rise, ir.CreateFMul(floats.all(1.5957691F, 1.5957691216057307118), inner), s);
    }
    case Activation::silu: {
      Value* s = floats.sigmoid(z);
      return v.multiply_add(ir.CreateFMul(z, s), ir.CreateFSub(floats.all(1), s), s);
    }
  }
  return floats.all(1);
}

}  // namespace sparsekiln::cpu
