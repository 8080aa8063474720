#include "compiler/cpu/epilogue_ir.h"

#include <algorithm>
#include <cstddef>

#include "compiler/cpu/activation_ir.h"
#include "compiler/cpu/call.h"

namespace sparsekiln::cpu {

void EpilogueIr::begin() {
  const auto pointer = [&](std::size_t offset, const char* name) {
    return v_.argument(ir_.getPtrTy(), offset, name);
  };
  const auto scalar = [&](std::size_t offset, const char* name) {
    return v_.load(ir_.getFloatTy(), v_.at(v_.call, static_cast<std::int64_t>(offset)), 4, name);
  };
  y_ = pointer(offsetof(Call, y), "y");
  y_stride_ = v_.argument(ir_.getInt64Ty(), offsetof(Call, y_stride), "y_stride");
  if (g_.channels_first()) image_ = image_of_tile(v_, g_);
  if (g_.epilogue.scale) {
    alpha_ = scalar(offsetof(Call, alpha), "alpha");
    beta_ = scalar(offsetof(Call, beta), "beta");
  }
  if (g_.epilogue.bias) bias_ = pointer(offsetof(Call, bias), "bias");
  if (g_.epilogue.bias && g_.epilogue.glu) v_bias_ = pointer(offsetof(Call, v_bias), "v_bias");
  if (g_.epilogue.residual) {
    residual_ = pointer(offsetof(Call, residual), "residual");
    residual_stride_ = v_.argument(ir_.getInt64Ty(), offsetof(Call, residual_stride), "residual_stride");
  }
}

EpilogueIr::Value* EpilogueIr::element(Value* base, Value* major, Value* stride, Value* minor) {
  Value* first = image_ == nullptr ? ir_.CreateMul(major, stride)
                                   : v_.plus(ir_.CreateMul(image_, stride),
                                             v_.times(major, g_.correlation->output_positions()));
  return v_.at(base, v_.times(v_.plus(first, minor), g_.out_bytes()));
}

EpilogueIr::Value* EpilogueIr::y_at(Value* major, Value* minor) {
  return element(y_, major, y_stride_, minor);
}

EpilogueIr::Value* EpilogueIr::outputs_of(Value* row) {
  Value* whole = v_.constant(g_.block_out);
  if (!g_.cuts_out) return whole;
  return ir_.CreateSelect(ir_.CreateICmpEQ(row, layout_.number(LayoutNumber::last_row)),
                          layout_.number(LayoutNumber::last_outputs), whole);
}

unsigned EpilogueIr::align_of(std::int32_t lanes) const { return g_.aligned(lanes * g_.out_bytes()); }

void EpilogueIr::store(const Run& run) {
  const std::int32_t side = std::min(8, v_.level.lanes);
  const auto* known = llvm::dyn_cast<llvm::ConstantInt>(run.count);
  const bool whole = known != nullptr && known->getSExtValue() % side == 0;
  if (whole && g_.epilogue == Epilogue{}) {
    for (std::int64_t i = 0; i < known->getSExtValue(); i += side) store_vector(run, v_.constant(i), side);
    return;
  }
  Value* vectors = ir_.CreateSDiv(run.count, v_.constant(side));
  v_.loop("vector", v_.constant(0), vectors,
          [&](Value* number) { store_vector(run, v_.times(number, side), side); });
  if (whole) return;
  v_.loop("single", v_.times(vectors, side), run.count, [&](Value* i) { store_vector(run, i, 1); });
}

/// alpha · sum + bias, of W or V.
EpilogueIr::Value* EpilogueIr::scaled(Value* sum, Value* bias, const Run& run, Value* first,
                                      std::int32_t lanes) {
  Value* term = nullptr;
  if (bias != nullptr && g_.feature_major) {
    Value* one = v_.load_floats(g_.out_dtype, v_.at(bias, v_.times(run.major, g_.out_bytes())), 1,
                                static_cast<unsigned>(g_.out_bytes()));
    term = v_.splat(ir_.CreateExtractElement(one, std::uint64_t{0}), lanes);
  } else if (bias != nullptr) {
    Value* feature = v_.plus(run.minor, first);
    term = v_.load_floats(g_.out_dtype, v_.at(bias, v_.times(feature, g_.out_bytes())), lanes,
                          static_cast<unsigned>(g_.out_bytes()));
  }
  if (!g_.epilogue.scale) return term == nullptr ? sum : ir_.CreateFAdd(sum, term);
  Value* alpha = v_.splat(alpha_, lanes);
  return term == nullptr ? ir_.CreateFMul(alpha, sum) : v_.multiply_add(alpha, sum, term);
}

void EpilogueIr::store_vector(const Run& run, Value* first, std::int32_t lanes) {
  const auto sums = [&](std::int64_t bytes) {
    return v_.load(v_.floats(lanes), v_.at(v_.at(run.sums, v_.times(first, 4)), bytes),
                   lanes == 1 || image_ != nullptr ? 4U : 16U);
  };
  Value* y = v_.at(run.y, v_.times(first, g_.out_bytes()));
  Value* result = activate(v_, g_.epilogue.activation, scaled(sums(0), bias_, run, first, lanes));
  if (g_.epilogue.glu) result = ir_.CreateFMul(result, scaled(sums(run.v_bytes), v_bias_, run, first, lanes));
  if (g_.epilogue.residual) {
    Value* from = element(residual_, run.major, residual_stride_, v_.plus(run.minor, first));
    result = ir_.CreateFAdd(result, v_.load_floats(g_.out_dtype, from, lanes, align_of(lanes)));
  }
  if (g_.epilogue.scale) {
    Value* reads = ir_.CreateFCmpUNE(beta_, llvm::ConstantFP::get(ir_.getFloatTy(), 0));
    result = v_.choose("old_y", reads, result, [&] {
      Value* before = v_.load_floats(g_.out_dtype, y, lanes, align_of(lanes));
      return v_.multiply_add(v_.splat(beta_, lanes), before, result);
    });
  }
  v_.store(v_.rounded_to(g_.out_dtype, result), y, align_of(lanes));
}

}  // namespace sparsekiln::cpu
