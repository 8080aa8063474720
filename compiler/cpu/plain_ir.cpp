#include "compiler/cpu/plain_ir.h"

#include <algorithm>

#include "compiler/cpu/call.h"

namespace sparsekiln::cpu {

std::int32_t PlainIr::most_lanes() const {
  // Blocks have sides of 8 and more, which are whole vectors of at most eight lanes.
  return std::clamp(4 * v_.level.lanes / static_cast<std::int32_t>(sum_bytes()), 1, 8);
}

llvm::FixedVectorType* PlainIr::sums(std::int32_t lanes) {
  return llvm::FixedVectorType::get(v_.element_type(summed_), static_cast<unsigned>(lanes));
}

PlainIr::Value* PlainIr::stack(std::int64_t count, const char* name) {
  auto* bytes = llvm::ArrayType::get(ir_.getInt8Ty(), static_cast<std::uint64_t>(count * sum_bytes()));
  auto* memory = ir_.CreateAlloca(bytes, nullptr, name);
  memory->setAlignment(llvm::Align(64));
  return memory;
}

void PlainIr::clear(Value* to, std::int64_t count) {
  v_.loop("clear", v_.constant(0), v_.constant(count), [&](Value* i) { store_sums(zeros(1), to, i); });
}

PlainIr::Value* PlainIr::load_sums(Value* base, Value* index, std::int32_t lanes) {
  return v_.load(sums(lanes), v_.at(base, v_.times(index, sum_bytes())), static_cast<unsigned>(sum_bytes()));
}

void PlainIr::store_sums(Value* sums, Value* base, Value* index) {
  v_.store(sums, v_.at(base, v_.times(index, sum_bytes())), static_cast<unsigned>(sum_bytes()));
}

PlainIr::Value* PlainIr::as_computed(Value* sums) {
  if (summed_ == sum_type_ || out_dtype_ == summed_) return sums;
  const auto lanes = llvm::cast<llvm::FixedVectorType>(sums->getType())->getNumElements();
  return ir_.CreateSIToFP(sums, llvm::FixedVectorType::get(v_.element_type(sum_type_), lanes));
}

PlainIr::Value* PlainIr::load_element(DType type, Value* base, Value* index) {
  const std::size_t bytes = size_of(type);
  Value* address = v_.at(base, v_.times(index, static_cast<std::int64_t>(bytes)));
  return v_.widened(type, v_.load_elements(type, address, 1, static_cast<unsigned>(bytes)));
}

void PlainIr::store_output(Value* sum, Value* base, Value* index) {
  const std::size_t bytes = size_of(out_dtype_);
  v_.store(v_.rounded_to(out_dtype_, sum), v_.at(base, v_.times(index, static_cast<std::int64_t>(bytes))),
           static_cast<unsigned>(bytes));
}

PlainIr::Value* PlainIr::broadcast(Value* one, std::int32_t lanes) {
  return lanes == 1 ? one : v_.splat(ir_.CreateExtractElement(one, std::uint64_t{0}), lanes);
}

PlainIr::Value* PlainIr::scalar(std::size_t offset, const char* name) {
  Value* address = v_.at(v_.call, static_cast<std::int64_t>(offset));
  return v_.splat(v_.load(v_.element_type(sum_type_), address, static_cast<unsigned>(sum_bytes()), name), 1);
}

PlainIr::Value* PlainIr::alpha() {
  return scalar(sum_type_ == DType::f64 ? offsetof(Call, alpha64) : offsetof(Call, alpha), "alpha");
}

PlainIr::Value* PlainIr::beta() {
  return scalar(sum_type_ == DType::f64 ? offsetof(Call, beta64) : offsetof(Call, beta), "beta");
}

PlainIr::Value* PlainIr::is_not_zero(Value* one) {
  Value* value = ir_.CreateExtractElement(one, std::uint64_t{0});
  return ir_.CreateFCmpUNE(value, llvm::ConstantFP::get(value->getType(), 0));
}

}  // namespace sparsekiln::cpu
