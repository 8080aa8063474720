#include "compiler/cpu/activation_ir.h"

#include <array>
#include <cmath>
#include <cstdint>

#include <llvm/IR/Intrinsics.h>

namespace sparsekiln::cpu {
namespace {

using Value = llvm::Value;

/// What e^t is computed from, in float32 as templates/activation.cuh has it, and in float64.
struct ExpNumbers {
  double log2_e;
  double ln2_high;  ///< minus ln 2 in two parts: a multiple of the first has no rounding error
  double ln2_low;
  double ones;  ///< a number to which an integer is added by adding it in the lowest bits
  std::uint64_t ones_bits;
  std::uint64_t fraction_bits;
  std::uint64_t bias;  ///< of the exponent
  double least;        ///< below it e^t leaves the normal numbers
};
constexpr ExpNumbers kExp32{1.44269504F, -0.693359375F, 2.12194440e-4F, 0x1.8p23, 0x4b400000, 23, 127, -87};
constexpr ExpNumbers kExp64{0x1.71547652b82fep0,
                            -0x1.62e42feep-1,
                            -0x1.a39ef35793c76p-33,
                            0x1.8p52,
                            0x4338000000000000,
                            52,
                            1023,
                            -708};

// Polynomials from the highest coefficient down. (e^r - 1) / r on [-ln 2 / 2, ln 2 / 2]: see
// templates/activation.cuh; in float64 Taylor's, off by 4e-18.
constexpr std::array<double, 6> kExpQuotient32 = {1.3751407e-3F, 8.368916e-3F,  4.1669533e-2F,
                                                  1.6666518e-1F, 4.9999988e-1F, 1.0F};
constexpr std::array<double, 14> kExpQuotient64 = {1.0 / 87178291200,
                                                   1.0 / 6227020800,
                                                   1.0 / 479001600,
                                                   1.0 / 39916800,
                                                   1.0 / 3628800,
                                                   1.0 / 362880,
                                                   1.0 / 40320,
                                                   1.0 / 5040,
                                                   1.0 / 720,
                                                   1.0 / 120,
                                                   1.0 / 24,
                                                   1.0 / 6,
                                                   0.5,
                                                   1.0};
// The tail of the normal distribution over its density and t, by t = 1 / (1 + |z| / 4). In float64 it is
// interpolated in Chebyshev points for |z| up to 39, off by 5e-16 of itself.
constexpr std::array<double, 9> kNormalTail32 = {2.5175435e-2F,  -1.5011372e-1F, 2.9047611e-1F,
                                                 -1.9922151e-1F, 1.9713987e-1F,  3.4939222e-2F,
                                                 1.0321850e-1F,  9.8593190e-2F,  9.9792838e-2F};
constexpr std::array<double, 21> kNormalTail64 = {
    0x1.0804e1b828afbp-9,   -0x1.665029dc747dep-6, 0x1.ba950807f6bc0p-4, -0x1.475c5e1e86716p-2,
    0x1.41374bd979e42p-1,   -0x1.b6e61f5d43463p-1, 0x1.ae8d8c516677ep-1, -0x1.3a8d08078cae7p-1,
    0x1.65ed8b98cc24cp-2,   -0x1.34ac777b6966dp-3, 0x1.6db382869a656p-5, -0x1.3547ffc6258dcp-6,
    -0x1.efcbd8cc7b35ap-11, 0x1.c99dda921a8c7p-8,  0x1.7f3fe9329fac3p-6, 0x1.62505dd4b22cap-5,
    0x1.041b07039713ep-4,   0x1.4beba4394b6c4p-4,  0x1.7efc0bf39afcfp-4, 0x1.98845350e0d4fp-4,
    0x1.9884533cf20edp-4};

/// Arithmetic on vectors like one that is given, of float32 or float64. Names of functions are those of
/// templates/activation.cuh, which says where the numbers of float32 come from.
class Reals {
 public:
  Reals(VectorIr& v, Value* like)
      : ir(v.ir),
        v_(v),
        type_(llvm::cast<llvm::FixedVectorType>(like->getType())),
        words_(llvm::VectorType::getInteger(type_)),
        wide_(type_->getElementType()->isDoubleTy()) {}

  [[nodiscard]] Value* all(double value) const { return llvm::ConstantFP::get(type_, value); }
  /// A constant whose float32 value is not the float nearest to the exact value.
  [[nodiscard]] Value* all(float in_float32, double in_float64) const {
    return all(wide_ ? in_float64 : double{in_float32});
  }
  [[nodiscard]] Value* absolute(Value* x) const { return ir.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  [[nodiscard]] Value* multiply_add(Value* a, Value* b, Value* c) const { return v_.multiply_add(a, b, c); }
  [[nodiscard]] Value* is_positive(Value* z) const { return ir.CreateFCmpOGT(z, all(0)); }

  [[nodiscard]] Value* exp_of_negative(Value* t) const {
    const Exponential e = exponential(t);
    Value* p = multiply_add(e.quotient, e.r, all(1));
    Value* result = ir.CreateFMul(p, scale_of(e));
    return ir.CreateSelect(ir.CreateFCmpOLT(t, all(numbers().least)), all(0), result);
  }

  [[nodiscard]] Value* expm1_of_negative(Value* t) const {
    const Exponential e = exponential(t);
    Value* q = ir.CreateFMul(e.quotient, e.r);
    Value* scale = scale_of(e);
    Value* result = multiply_add(scale, q, ir.CreateFSub(scale, all(1)));
    return ir.CreateSelect(ir.CreateFCmpOLT(t, all(numbers().least)), all(-1), result);
  }

  [[nodiscard]] Value* sigmoid(Value* t) const {
    Value* e = exp_of_negative(ir.CreateFNeg(absolute(t)));
    Value* above = ir.CreateSelect(ir.CreateFCmpOLT(t, all(0)), e, all(1));
    return ir.CreateFDiv(above, ir.CreateFAdd(all(1), e));
  }

  struct Normal {
    Value* cdf;
    Value* density;
  };
  [[nodiscard]] Normal normal_cdf(Value* z) const {
    Value* t = ir.CreateFDiv(all(1), multiply_add(absolute(z), all(0.25), all(1)));
    Value* p = wide_ ? polynomial(kNormalTail64, t) : polynomial(kNormalTail32, t);
    Value* density = exp_of_negative(ir.CreateFMul(all(-0.5), ir.CreateFMul(z, z)));
    Value* tail = ir.CreateFMul(ir.CreateFMul(t, p), density);
    Value* below = ir.CreateFCmpOLT(z, all(0));
    return {ir.CreateSelect(below, tail, ir.CreateFSub(all(1), tail)), density};
  }

  llvm::IRBuilder<>& ir;

 private:
  /// e^t = 2^power · (1 + r·quotient) for t <= 0.
  struct Exponential {
    Value* power;
    Value* r;
    Value* quotient;
  };
  [[nodiscard]] Exponential exponential(Value* t) const {
    const ExpNumbers& n = numbers();
    // Rounded to the nearest integer by an addition: then the lowest bits are the integer's.
    Value* shifted = ir.CreateFAdd(ir.CreateFMul(t, all(n.log2_e)), all(n.ones));
    Value* power = ir.CreateSub(ir.CreateBitCast(shifted, words_), words(n.ones_bits));
    Value* k = ir.CreateFSub(shifted, all(n.ones));
    Value* r = multiply_add(k, all(n.ln2_low), multiply_add(k, all(n.ln2_high), t));
    return {power, r, wide_ ? polynomial(kExpQuotient64, r) : polynomial(kExpQuotient32, r)};
  }
  /// 2^power.
  [[nodiscard]] Value* scale_of(const Exponential& e) const {
    Value* biased = ir.CreateAdd(e.power, words(numbers().bias));
    return ir.CreateBitCast(ir.CreateShl(biased, words(numbers().fraction_bits)), type_);
  }
  [[nodiscard]] Value* polynomial(std::span<const double> coefficients, Value* x) const {
    Value* p = all(coefficients.front());
    for (const double coefficient : coefficients.subspan(1)) p = multiply_add(p, x, all(coefficient));
    return p;
  }
  [[nodiscard]] const ExpNumbers& numbers() const { return wide_ ? kExp64 : kExp32; }
  [[nodiscard]] Value* words(std::uint64_t value) const { return llvm::ConstantInt::get(words_, value); }

  VectorIr& v_;
  llvm::FixedVectorType* type_;
  llvm::VectorType* words_;  ///< integers of as many bits
  bool wide_;                ///< float64
};

Value* identity(const Reals&, Value* z) { return z; }
Value* one(const Reals& of, Value*) { return of.all(1); }

Value* relu(const Reals& of, Value* z) {
  return of.ir.CreateSelect(of.ir.CreateFCmpOLE(z, of.all(0)), of.all(0), z);
}
Value* relu_derivative(const Reals& of, Value* z) {
  return of.ir.CreateSelect(of.is_positive(z), of.all(1), of.all(0));
}

Value* gelu(const Reals& of, Value* z) { return of.ir.CreateFMul(z, of.normal_cdf(z).cdf); }
Value* gelu_derivative(const Reals& of, Value* z) {
  const auto [cdf, density] = of.normal_cdf(z);
  return of.multiply_add(of.ir.CreateFMul(z, of.all(0.3989422804014327)), density, cdf);  // 1 / √(2π)
}

/// 2·√(2/π)·(z + 0.044715·z³).
Value* tanh_argument(const Reals& of, Value* z) {
  Value* cubic = of.multiply_add(of.ir.CreateFMul(z, z), of.all(0.044715), of.all(1));
  return of.ir.CreateFMul(of.ir.CreateFMul(of.all(1.5957691F, 1.5957691216057308), z), cubic);
}
Value* gelu_tanh(const Reals& of, Value* z) { return of.ir.CreateFMul(z, of.sigmoid(tanh_argument(of, z))); }
Value* gelu_tanh_derivative(const Reals& of, Value* z) {
  auto& ir = of.ir;
  Value* s = of.sigmoid(tanh_argument(of, z));
  Value* rise = ir.CreateFMul(ir.CreateFMul(z, s), ir.CreateFSub(of.all(1), s));
  Value* inner = of.multiply_add(ir.CreateFMul(z, z), of.all(0.134145), of.all(1));
  return of.multiply_add(rise, ir.CreateFMul(of.all(1.5957691F, 1.5957691216057308), inner), s);
}

Value* silu(const Reals& of, Value* z) { return of.ir.CreateFMul(z, of.sigmoid(z)); }
Value* silu_derivative(const Reals& of, Value* z) {
  Value* s = of.sigmoid(z);
  return of.multiply_add(of.ir.CreateFMul(z, s), of.ir.CreateFSub(of.all(1), s), s);
}

Value* hardswish(const Reals& of, Value* z) {
  auto& ir = of.ir;
  Value* t = ir.CreateFAdd(z, of.all(3));
  Value* above = ir.CreateSelect(ir.CreateFCmpOLT(t, of.all(0)), of.all(0), t);
  Value* both = ir.CreateSelect(ir.CreateFCmpOGT(above, of.all(6)), of.all(6), above);
  return ir.CreateFMul(z, ir.CreateFMul(both, of.all(1.0 / 6)));
}
Value* hardswish_derivative(const Reals& of, Value* z) {
  auto& ir = of.ir;
  Value* rise = of.multiply_add(z, of.all(1.0 / 3), of.all(0.5));
  Value* below = ir.CreateSelect(ir.CreateFCmpOGE(z, of.all(3)), of.all(1), rise);
  return ir.CreateSelect(ir.CreateFCmpOLE(z, of.all(-3)), of.all(0), below);
}

/// tanh(ln(1 + e^z)) as a quotient, and what its derivative takes besides.
struct MishQuotient {
  Value* above;
  Value* below;
  Value* e;
  Value* weight;
};
MishQuotient mish_quotient(const Reals& of, Value* z) {
  auto& ir = of.ir;
  Value* e = of.exp_of_negative(ir.CreateFNeg(of.absolute(z)));
  Value* square = ir.CreateFMul(e, e);
  Value* positive = of.is_positive(z);
  Value* above = of.multiply_add(of.all(2), e, ir.CreateSelect(positive, of.all(1), square));
  Value* below = of.multiply_add(of.all(2), ir.CreateSelect(positive, square, of.all(1)), above);
  return {above, below, e, ir.CreateSelect(positive, square, e)};
}
Value* mish(const Reals& of, Value* z) {
  const MishQuotient q = mish_quotient(of, z);
  return of.ir.CreateFMul(z, of.ir.CreateFDiv(q.above, q.below));
}
Value* mish_derivative(const Reals& of, Value* z) {
  auto& ir = of.ir;
  const MishQuotient q = mish_quotient(of, z);
  Value* r = ir.CreateFDiv(of.all(1), q.below);
  Value* weighted = ir.CreateFMul(z, q.weight);
  Value* rise = ir.CreateFMul(weighted, of.multiply_add(of.all(4), q.e, of.all(4)));
  return ir.CreateFMul(r, of.multiply_add(rise, r, q.above));
}

Value* leaky_relu(const Reals& of, Value* z) {
  return of.ir.CreateSelect(of.is_positive(z), z, of.ir.CreateFMul(z, of.all(0.01)));
}
Value* leaky_relu_derivative(const Reals& of, Value* z) {
  return of.ir.CreateSelect(of.is_positive(z), of.all(1), of.all(0.01));
}

Value* tanh(const Reals& of, Value* z) {
  auto& ir = of.ir;
  Value* m = of.expm1_of_negative(ir.CreateFMul(of.all(-2), of.absolute(z)));
  Value* quotient = ir.CreateFDiv(m, ir.CreateFAdd(of.all(2), m));
  return ir.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, quotient, z);
}
Value* tanh_derivative(const Reals& of, Value* z) {
  auto& ir = of.ir;
  Value* e = of.exp_of_negative(ir.CreateFMul(of.all(-2), of.absolute(z)));
  Value* sum = ir.CreateFAdd(of.all(1), e);
  return ir.CreateFDiv(ir.CreateFMul(of.all(4), e), ir.CreateFMul(sum, sum));
}

Value* sigmoid(const Reals& of, Value* z) { return of.sigmoid(z); }
Value* sigmoid_derivative(const Reals& of, Value* z) {
  auto& ir = of.ir;
  Value* e = of.exp_of_negative(ir.CreateFNeg(of.absolute(z)));
  Value* sum = ir.CreateFAdd(of.all(1), e);
  return ir.CreateFDiv(e, ir.CreateFMul(sum, sum));
}

struct ActivationCode {
  Value* (*function)(const Reals& of, Value* z);
  Value* (*derivative)(const Reals& of, Value* z);
};

/// One line an activation; the compiler misses the line of a new one.
ActivationCode code_of(Activation activation) {
  switch (activation) {
    case Activation::none:
      return {identity, one};
    case Activation::relu:
      return {relu, relu_derivative};
    case Activation::gelu:
      return {gelu, gelu_derivative};
    case Activation::gelu_tanh:
      return {gelu_tanh, gelu_tanh_derivative};
    case Activation::silu:
      return {silu, silu_derivative};
    case Activation::hardswish:
      return {hardswish, hardswish_derivative};
    case Activation::mish:
      return {mish, mish_derivative};
    case Activation::leaky_relu:
      return {leaky_relu, leaky_relu_derivative};
    case Activation::tanh:
      return {tanh, tanh_derivative};
    case Activation::sigmoid:
      return {sigmoid, sigmoid_derivative};
  }
  return {identity, one};
}

}  // namespace

Value* activate(VectorIr& v, Activation activation, Value* z) {
  return code_of(activation).function(Reals(v, z), z);
}

Value* derivative(VectorIr& v, Activation activation, Value* z) {
  return code_of(activation).derivative(Reals(v, z), z);
}

}  // namespace sparsekiln::cpu
