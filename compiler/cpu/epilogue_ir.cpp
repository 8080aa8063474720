#include "compiler/cpu/epilogue_ir.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <llvm/IR/Constants.h>
#include <llvm/IR/GlobalVariable.h>

#include "compiler/cpu/activation_ir.h"
#include "compiler/cpu/call.h"
#include "compiler/cpu/lattice_ir.h"

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
  if (g_.epilogue.scale) {
    alpha_ = scalar(offsetof(Call, alpha), "alpha");
    beta_ = scalar(offsetof(Call, beta), "beta");
  }
  if (g_.epilogue.bias) bias_ = pointer(offsetof(Call, bias), "bias");
  if (g_.epilogue.bias && g_.epilogue.glu) v_bias_ = pointer(offsetof(Call, v_bias), "v_bias");
  if (cell_) cell_->begin();
  if (g_.edges) {
    edge_gain_ = pointer(offsetof(Call, edge_gain), "edge_gain");
    edge_bias_ = pointer(offsetof(Call, edge_bias), "edge_bias");
    const std::vector<std::uint32_t> numbers(g_.edges->situations.begin(), g_.edges->situations.end());
    if (g_.edges->count < std::ssize(numbers)) {
      auto* data = llvm::ConstantDataArray::get(ir_.getContext(), llvm::ArrayRef(numbers));
      situations_ = new llvm::GlobalVariable(v_.module, data->getType(), true,
                                             llvm::GlobalValue::InternalLinkage, data, "edge_situations");
    }
  }
  if (g_.epilogue.residual) {
    residual_ = pointer(offsetof(Call, residual), "residual");
    residual_stride_ = v_.argument(ir_.getInt64Ty(), offsetof(Call, residual_stride), "residual_stride");
  }
}

EpilogueIr::Value* EpilogueIr::edges_of(Value* row) const {
  if (!g_.edges) return nullptr;
  const EdgeRuns& edges = *g_.edges;
  const Correlation::Extents& output = g_.correlation->output;
  Value* line = ir_.CreateUDiv(row, v_.constant(output[2]));
  const std::array<Value*, 3> position{
      ir_.CreateURem(ir_.CreateUDiv(line, v_.constant(output[1])), v_.constant(output[0])),
      ir_.CreateURem(line, v_.constant(output[1])), ir_.CreateURem(row, v_.constant(output[2]))};
  Value* run = v_.constant(0);
  for (std::size_t i = 0; i < position.size(); ++i) {
    run = v_.times(run, edges.runs(i));
    for (const std::int32_t begin : edges.begins[i])
      run =
          v_.plus(run, ir_.CreateZExt(ir_.CreateICmpUGE(position[i], v_.constant(begin)), ir_.getInt64Ty()));
  }
  Value* situation = situations_ == nullptr ? run : v_.entry(situations_, run, "situation");
  return ir_.CreateMul(situation, layout_.number(LayoutNumber::out_features), "edges");
}

EpilogueIr::Value* EpilogueIr::element(DType type, Value* base, Value* stride, Value* major, Value* minor,
                                       Value* image) const {
  Value* first = image == nullptr
                     ? ir_.CreateMul(major, stride)
                     : v_.plus(ir_.CreateMul(image, stride),
                               ir_.CreateMul(major, ImageExtents(v_, *g_.correlation).output_positions()));
  return v_.at(base, v_.times(v_.plus(first, minor), static_cast<std::int64_t>(size_of(type))));
}

EpilogueIr::Value* EpilogueIr::y_at(Value* major, Value* minor, Value* image) const {
  return element(g_.out_dtype, y_, y_stride_, major, minor, image);
}

EpilogueIr::Value* EpilogueIr::y_bytes(std::int64_t majors) const {
  return v_.times(y_stride_, majors * g_.out_bytes());
}

EpilogueIr::Value* EpilogueIr::outputs_of(Value* row) const {
  Value* whole = v_.constant(g_.block_out);
  if (!g_.cuts_out) return whole;
  return ir_.CreateSelect(ir_.CreateICmpEQ(row, layout_.number(LayoutNumber::last_row)),
                          layout_.number(LayoutNumber::last_outputs), whole);
}

unsigned EpilogueIr::align_of(DType type, std::int32_t lanes) const {
  return g_.aligned(type, lanes * static_cast<std::int64_t>(size_of(type)));
}

void EpilogueIr::store(const Run& run) const {
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

/// alpha · sum · edge_gain + edge_bias.
EpilogueIr::Value* EpilogueIr::at_edge(Value* sum, const Run& run, Value* first, std::int32_t lanes) const {
  Value* offset = v_.times(v_.plus(run.edges, v_.plus(run.minor, first)), 4);
  const auto load = [&](Value* base) { return v_.load_floats(DType::f32, v_.at(base, offset), lanes, 4); };
  Value* scaled = g_.epilogue.scale ? ir_.CreateFMul(v_.splat(alpha_, lanes), sum) : sum;
  return v_.multiply_add(scaled, load(edge_gain_), load(edge_bias_));
}

/// alpha · sum + bias, of W or V.
EpilogueIr::Value* EpilogueIr::scaled(Value* sum, Value* bias, const Run& run, Value* first,
                                      std::int32_t lanes) const {
  if (g_.edges) return at_edge(sum, run, first, lanes);
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

EpilogueIr::Value* EpilogueIr::sums(const Run& run, Value* first, std::int32_t lanes,
                                    std::int64_t weight) const {
  return v_.load(v_.floats(lanes), v_.at(v_.at(run.sums, v_.times(first, 4)), weight * run.v_bytes),
                 lanes == 1 || run.image != nullptr ? 4U : 16U);
}

EpilogueIr::Value* EpilogueIr::residual(const Run& run, Value* first, std::int32_t lanes) const {
  const DType type = g_.residual_dtype;
  Value* from = element(type, residual_, residual_stride_, run.major, v_.plus(run.minor, first), run.image);
  return v_.load_floats(type, from, lanes, align_of(type, lanes));
}

void EpilogueIr::store_cells(const Run& run, Value* first, std::int32_t lanes) const {
  const auto align = [&](DType type) { return align_of(type, lanes); };
  const CellIr::Access access{
      [&](DType type, Value* address) { return v_.load_floats(type, address, lanes, align(type)); },
      [&](DType type, Value* value, Value* address) {
        v_.store(v_.rounded_to(type, value), address, align(type));
      }};
  Value* minor = v_.plus(run.minor, first);
  Value* y = v_.at(run.y, v_.times(first, g_.out_bytes()));
  const auto sum = [&](std::int64_t weight) { return sums(run, first, lanes, weight); };
  if (g_.cell->forward) return cell_->forward({sum(0), sum(1), sum(2), sum(3)}, run.major, minor, y, access);
  Value* dh = sum(0);
  if (g_.epilogue.residual) dh = ir_.CreateFAdd(dh, residual(run, first, lanes));
  cell_->backward(dh, run.major, minor, y, y_stride_, access);
}

void EpilogueIr::store_vector(const Run& run, Value* first, std::int32_t lanes) const {
  if (cell_) return store_cells(run, first, lanes);
  Value* y = v_.at(run.y, v_.times(first, g_.out_bytes()));
  Value* result =
      activate(v_, g_.epilogue.activation, scaled(sums(run, first, lanes, 0), bias_, run, first, lanes));
  if (g_.epilogue.glu)
    result = ir_.CreateFMul(result, scaled(sums(run, first, lanes, 1), v_bias_, run, first, lanes));
  if (g_.epilogue.residual) result = ir_.CreateFAdd(result, residual(run, first, lanes));
  if (g_.epilogue.scale) {
    Value* reads = ir_.CreateFCmpUNE(beta_, llvm::ConstantFP::get(ir_.getFloatTy(), 0));
    result = v_.choose("old_y", reads, result, [&] {
      Value* before = v_.load_floats(g_.out_dtype, y, lanes, align_of(g_.out_dtype, lanes));
      return v_.multiply_add(v_.splat(beta_, lanes), before, result);
    });
  }
  v_.store(v_.rounded_to(g_.out_dtype, result), y, align_of(g_.out_dtype, lanes));
}

}  // namespace sparsekiln::cpu
