#include "compiler/cpu/epilogue_ir.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include <fmt/format.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/GlobalVariable.h>
#include <sparsekiln/error.h>

#include "compiler/cpu/call.h"
#include "compiler/cpu/epilogue_formula.h"
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
  locate(OperandForm::dense);
  if (cell_) cell_->begin();
  if (g_.edges) {
    const std::vector<std::uint32_t> numbers(g_.edges->situations.begin(), g_.edges->situations.end());
    if (g_.edges->count < std::ssize(numbers)) {
      auto* data = llvm::ConstantDataArray::get(ir_.getContext(), llvm::ArrayRef(numbers));
      situations_ = new llvm::GlobalVariable(v_.module, data->getType(), true,
                                             llvm::GlobalValue::InternalLinkage, data, "edge_situations");
    }
  }
  locate(OperandForm::activation);
}

void EpilogueIr::locate(OperandForm form) {
  Computation of_epilogue;
  of_epilogue.epilogue = g_.epilogue;
  for (const OperandRow& row : operand_rows()) {
    if (row.form != form || !row.argument || row.argument == Argument::x || row.computed(of_epilogue) ||
        !row.taken(of_epilogue))
      continue;
    Located operand{&row, v_.argument(ir_.getPtrTy(), row.place.address, row.name.data())};
    if (form == OperandForm::activation)
      operand.stride = v_.argument(ir_.getInt64Ty(), row.place.stride, "stride");
    operands_.push_back(operand);
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

EpilogueIr::Value* EpilogueIr::operand(const OperandRow& row, const Run& run, Value* first,
                                       std::int32_t lanes) const {
  const auto found = std::find_if(operands_.begin(), operands_.end(),
                                  [&](const Located& located) { return located.row == &row; });
  if (found == operands_.end())
    throw Error(ErrorKind::internal, fmt::format("an epilogue without its operand {}", row.name));
  if (row.form == OperandForm::activation) {
    if (row.type != OperandType::result)
      throw Error(ErrorKind::internal,
                  fmt::format("operand {}, which is not of the result's type", row.name));
    const DType type = g_.residual_dtype;
    Value* from =
        element(type, found->address, found->stride, run.major, v_.plus(run.minor, first), run.image);
    return v_.load_floats(type, from, lanes, align_of(type, lanes));
  }
  const DType type = row.type == OperandType::result ? g_.out_dtype : DType::f32;
  const auto bytes = static_cast<std::int64_t>(size_of(type));
  const auto align = static_cast<unsigned>(bytes);
  if (row.per == Per::situation) {
    Value* offset = v_.times(v_.plus(run.edges, v_.plus(run.minor, first)), bytes);
    return v_.load_floats(type, v_.at(found->address, offset), lanes, align);
  }
  if (row.per != Per::feature)
    throw Error(ErrorKind::internal, fmt::format("operand {}, which is not by features", row.name));
  if (!g_.feature_major)
    return v_.load_floats(type, v_.at(found->address, v_.times(v_.plus(run.minor, first), bytes)), lanes,
                          align);
  Value* one = v_.load_floats(type, v_.at(found->address, v_.times(run.major, bytes)), 1, align);
  return v_.splat(ir_.CreateExtractElement(one, std::uint64_t{0}), lanes);
}

EpilogueIr::Value* EpilogueIr::sums(const Run& run, Value* first, std::int32_t lanes,
                                    std::int64_t weight) const {
  return v_.load(v_.floats(lanes), v_.at(v_.at(run.sums, v_.times(first, 4)), weight * run.v_bytes),
                 lanes == 1 || run.image != nullptr ? 4U : 16U);
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
  if (g_.epilogue.residual) dh = ir_.CreateFAdd(dh, operand(operand_row("residual"), run, first, lanes));
  cell_->backward(dh, run.major, minor, y, y_stride_, access);
}

void EpilogueIr::store_vector(const Run& run, Value* first, std::int32_t lanes) const {
  if (cell_) return store_cells(run, first, lanes);
  Value* y = v_.at(run.y, v_.times(first, g_.out_bytes()));
  Value* result = finished(
      v_, g_.epilogue,
      {.sum = [&](std::int64_t weight) { return sums(run, first, lanes, weight); },
       .operand = [&](const OperandRow& row) { return operand(row, run, first, lanes); },
       .alpha = [&] { return v_.splat(alpha_, lanes); },
       .beta = [&] { return v_.splat(beta_, lanes); },
       .reads_y = [&] { return ir_.CreateFCmpUNE(beta_, llvm::ConstantFP::get(ir_.getFloatTy(), 0)); },
       .y = [&] { return v_.load_floats(g_.out_dtype, y, lanes, align_of(g_.out_dtype, lanes)); }});
  v_.store(v_.rounded_to(g_.out_dtype, result), y, align_of(g_.out_dtype, lanes));
}

}  // namespace sparsekiln::cpu
