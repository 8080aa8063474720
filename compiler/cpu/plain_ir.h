#pragma once

#include <cstddef>
#include <cstdint>

#include <sparsekiln/problem.h>

#include "compiler/cpu/vector_ir.h"
#include "compiler/element.h"

namespace sparsekiln::cpu {

/// What the plain passes are written in: VectorIr with the two types of a problem. Elements are loaded from
/// their own type, everything is computed in the type of the sums (sum_type), and results are rounded once.
class PlainIr {
 public:
  using Value = llvm::Value;
  using Values = VectorIr::Values;

  PlainIr(VectorIr& v, const Computation& what)
      : v_(v),
        ir_(v.ir),
        dtype_(what.dtype),
        out_dtype_(what.out_dtype),
        sum_type_(what.sum_type()),
        summed_(element(what.dtype).integer ? DType::i32 : what.sum_type()) {}

  /// The most lanes of a vector of sums.
  [[nodiscard]] std::int32_t most_lanes() const;
  [[nodiscard]] std::int64_t sum_bytes() const { return static_cast<std::int64_t>(size_of(sum_type_)); }
  [[nodiscard]] llvm::FixedVectorType* sums(std::int32_t lanes);
  [[nodiscard]] Value* zeros(std::int32_t lanes) { return llvm::Constant::getNullValue(sums(lanes)); }

  /// Uninitialized memory on the stack for so many sums.
  [[nodiscard]] Value* stack(std::int64_t count, const char* name);
  /// Writes zeros to `count` sums from `to` on.
  void clear(Value* to, std::int64_t count);
  /// `lanes` sums at `index` of an array of sums.
  [[nodiscard]] Value* load_sums(Value* base, Value* index, std::int32_t lanes = 1);
  void store_sums(Value* sums, Value* base, Value* index);
  /// Sums in the type that an epilogue computes in: y's own where that is of integers.
  [[nodiscard]] Value* as_computed(Value* sums);

  /// One element, as a vector of one sum: of an operand that is multiplied, and of one of the output type.
  [[nodiscard]] Value* load_operand(Value* base, Value* index) { return load_element(dtype_, base, index); }
  [[nodiscard]] Value* load_output(Value* base, Value* index) {
    return load_element(out_dtype_, base, index);
  }
  /// One element of any type, as a vector of one sum.
  [[nodiscard]] Value* load_element(DType type, Value* base, Value* index);
  /// One sum, rounded to the output type.
  void store_output(Value* sum, Value* base, Value* index);
  /// A sum as an operand can hold it: rounded to the operands' type, and widened again.
  [[nodiscard]] Value* as_operand(Value* sum) { return v_.widened(dtype_, v_.rounded_to(dtype_, sum)); }
  /// The only lane of `one`, in all of `lanes`.
  [[nodiscard]] Value* broadcast(Value* one, std::int32_t lanes);
  /// alpha and beta of the call, as sums.
  [[nodiscard]] Value* alpha();
  [[nodiscard]] Value* beta();
  /// Whether a vector of one sum is not 0; NaN is not.
  [[nodiscard]] Value* is_not_zero(Value* one);

 private:
  /// A member of the call of the type of the sums.
  [[nodiscard]] Value* scalar(std::size_t offset, const char* name);

  VectorIr& v_;
  llvm::IRBuilder<>& ir_;
  DType dtype_;
  DType out_dtype_;
  DType sum_type_;
  DType summed_;  ///< what products are summed in: sum_type_, or int32, of as many bytes
};

}  // namespace sparsekiln::cpu
