#include "compiler/cpu/vector_ir.h"

#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/TargetParser/Triple.h>

namespace sparsekiln::cpu {

using Value = llvm::Value;

VectorIr::VectorIr(llvm::Module& target_module, const Level& target_level)
    : module(target_module), level(target_level), ir(target_module.getContext()) {}

llvm::Function* VectorIr::begin_pass(std::string_view name) {
  auto* type =
      llvm::FunctionType::get(ir.getVoidTy(), {ir.getPtrTy(), ir.getInt32Ty(), ir.getInt32Ty()}, false);
  auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
  function->addFnAttr(llvm::Attribute::NoUnwind);
  // All the vectors of the level may be used; LLVM would else prefer halves of them.
  const std::string bits = std::to_string(level.lanes * 32);
  function->addFnAttr("prefer-vector-width", bits);
  function->addFnAttr("min-legal-vector-width", bits);
  ir.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "entry", function));
  call = function->getArg(0);
  call->setName("call");
  function->getArg(1)->setName("worker");
  function->getArg(2)->setName("batch_tile");
  worker = ir.CreateZExt(function->getArg(1), ir.getInt64Ty());
  batch_tile = ir.CreateZExt(function->getArg(2), ir.getInt64Ty());
  return function;
}

llvm::FixedVectorType* VectorIr::floats(std::int32_t lanes) {
  return llvm::FixedVectorType::get(ir.getFloatTy(), static_cast<unsigned>(lanes));
}
llvm::FixedVectorType* VectorIr::ints(std::int32_t lanes) {
  return llvm::FixedVectorType::get(ir.getInt32Ty(), static_cast<unsigned>(lanes));
}

Value* VectorIr::at(Value* base, Value* bytes, const char* name) {
  return ir.CreateInBoundsGEP(ir.getInt8Ty(), base, bytes, name);
}
Value* VectorIr::settled(Value* address) {
  auto* type = llvm::FunctionType::get(ir.getPtrTy(), {ir.getPtrTy()}, false);
  return ir.CreateCall(type, llvm::InlineAsm::get(type, "", "=r,0", false), {address});
}
VectorIr::Values VectorIr::pinned(const Values& values) {
  // Elsewhere registers have other names; where there are 32 of them, the scheduler does not run out.
  if (!llvm::Triple(module.getTargetTriple()).isX86() || level.registers > 16 || values.size() < 2)
    return values;
  std::string outputs;
  std::string inputs;
  std::vector<llvm::Type*> types;
  for (std::size_t i = 0; i < values.size(); ++i) {
    outputs += "=x,";
    inputs += std::to_string(i) + ",";
    types.push_back(values[i]->getType());
  }
  auto* all = llvm::StructType::get(module.getContext(), types);
  auto* type = llvm::FunctionType::get(all, types, false);
  auto* result =
      ir.CreateCall(type, llvm::InlineAsm::get(type, "", outputs + inputs + "~{memory}", true), values);
  Values same;
  for (unsigned i = 0; i < values.size(); ++i) same.push_back(ir.CreateExtractValue(result, i));
  return same;
}
Value* VectorIr::in_register(Value* vector) {
  auto* type = llvm::FunctionType::get(vector->getType(), {vector->getType()}, false);
  return ir.CreateCall(type, llvm::InlineAsm::get(type, "", "=x,0", false), {vector});
}
Value* VectorIr::times(Value* value, std::int64_t factor) { return ir.CreateMul(value, constant(factor)); }
Value* VectorIr::quotient(Value* value, std::int64_t divisor) {
  return divisor == 1 ? value : ir.CreateUDiv(value, constant(divisor));
}

Value* VectorIr::load(llvm::Type* type, Value* address, unsigned align, const char* name) {
  return ir.CreateAlignedLoad(type, address, llvm::Align(align), name);
}
Value* VectorIr::unchanging(llvm::Type* type, Value* address, unsigned align, const char* name) {
  auto* result = ir.CreateAlignedLoad(type, address, llvm::Align(align), name);
  result->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(ir.getContext(), {}));
  return result;
}
void VectorIr::store(Value* value, Value* address, unsigned align) {
  ir.CreateAlignedStore(value, address, llvm::Align(align));
}
Value* VectorIr::entry(Value* table, Value* index, const char* name) {
  return ir.CreateSExt(unchanging(ir.getInt32Ty(), at(table, times(index, 4)), 4), ir.getInt64Ty(), name);
}
void VectorIr::prefetch(Value* address, Cache cache) {
  const std::uint32_t locality = cache == Cache::first ? 3 : 2;  // LLVM's: 3 is nearest to the processor
  ir.CreateIntrinsic(llvm::Intrinsic::prefetch, {ir.getPtrTy()},
                     {address, ir.getInt32(0), ir.getInt32(locality), ir.getInt32(1)});
}

Value* VectorIr::splat(Value* scalar, std::int32_t lanes) {
  return ir.CreateVectorSplat(static_cast<unsigned>(lanes), scalar);
}

void VectorIr::loop(std::string_view name, Value* begin, Value* end,
                    const std::function<void(Value*)>& body) {
  (void)loop(name, begin, end, {}, [&](Value* i, const Values&) {
    body(i);
    return Values{};
  });
}

VectorIr::Values VectorIr::loop(std::string_view name, Value* begin, Value* end, Values carried,
                                const std::function<Values(Value*, const Values&)>& body) {
  const auto* first = llvm::dyn_cast<llvm::ConstantInt>(begin);
  const auto* last = llvm::dyn_cast<llvm::ConstantInt>(end);
  const bool known = first != nullptr && last != nullptr;
  const bool runs = known && first->getSExtValue() < last->getSExtValue();
  if (known && first->getSExtValue() + 1 == last->getSExtValue()) return body(begin, carried);
  auto* function = ir.GetInsertBlock()->getParent();
  auto* before = ir.GetInsertBlock();
  auto* block = llvm::BasicBlock::Create(module.getContext(), name, function);
  auto* after = llvm::BasicBlock::Create(module.getContext(), std::string(name) + ".end", function);
  if (runs)
    ir.CreateBr(block);
  else
    ir.CreateCondBr(ir.CreateICmpSLT(begin, end), block, after);
  ir.SetInsertPoint(block);
  auto* i = ir.CreatePHI(ir.getInt64Ty(), 2, std::string(name) + ".i");
  i->addIncoming(begin, before);
  Values phis;
  for (Value* value : carried) {
    auto* phi = ir.CreatePHI(value->getType(), 2);
    phi->addIncoming(value, before);
    phis.push_back(phi);
  }
  const Values next = body(i, phis);
  auto* latch = ir.GetInsertBlock();
  auto* step = ir.CreateAdd(i, constant(1));
  i->addIncoming(step, latch);
  for (std::size_t p = 0; p < phis.size(); ++p)
    llvm::cast<llvm::PHINode>(phis[p])->addIncoming(next[p], latch);
  ir.CreateCondBr(ir.CreateICmpSLT(step, end), block, after);
  ir.SetInsertPoint(after);
  Values results;
  for (std::size_t p = 0; p < phis.size(); ++p) {
    auto* phi = ir.CreatePHI(phis[p]->getType(), 2);
    phi->addIncoming(next[p], latch);
    if (!runs) phi->addIncoming(carried[p], before);
    results.push_back(phi);
  }
  return results;
}

void VectorIr::branch(std::string_view name, Value* condition, const std::function<void()>& then) {
  if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition)) {
    if (known->isOne()) then();
    return;
  }
  auto* function = ir.GetInsertBlock()->getParent();
  auto* block = llvm::BasicBlock::Create(module.getContext(), name, function);
  auto* after = llvm::BasicBlock::Create(module.getContext(), std::string(name) + ".end", function);
  ir.CreateCondBr(condition, block, after);
  ir.SetInsertPoint(block);
  then();
  ir.CreateBr(after);
  ir.SetInsertPoint(after);
}

Value* VectorIr::choose(std::string_view name, Value* condition, Value* otherwise,
                        const std::function<Value*()>& then) {
  if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition))
    return known->isOne() ? then() : otherwise;
  auto* before = ir.GetInsertBlock();
  Value* chosen = nullptr;
  llvm::BasicBlock* from = nullptr;
  branch(name, condition, [&] {
    chosen = then();
    from = ir.GetInsertBlock();
  });
  auto* phi = ir.CreatePHI(otherwise->getType(), 2);
  phi->addIncoming(otherwise, before);
  phi->addIncoming(chosen, from);
  return phi;
}

Value* VectorIr::multiply_add(Value* a, Value* b, Value* acc) {
  if (acc->getType()->isIntOrIntVectorTy()) return ir.CreateAdd(ir.CreateMul(a, b), acc);
  const auto id = level.fused ? llvm::Intrinsic::fma : llvm::Intrinsic::fmuladd;
  return ir.CreateIntrinsic(id, {acc->getType()}, {a, b, acc});
}

VectorIr::Values VectorIr::transpose(Values rows) {
  const auto size = static_cast<int>(rows.size());
  for (int half = 1; half < size; half *= 2) {
    std::vector<int> low(rows.size());
    std::vector<int> high(rows.size());
    for (int lane = 0; lane < size; ++lane) {
      const bool upper = (lane & half) != 0;
      low[static_cast<std::size_t>(lane)] = upper ? size + lane - half : lane;
      high[static_cast<std::size_t>(lane)] = upper ? size + lane : lane + half;
    }
    for (int row = 0; row < size; ++row) {
      if ((row & half) != 0) continue;
      Value*& first = rows[static_cast<std::size_t>(row)];
      Value*& second = rows[static_cast<std::size_t>(row + half)];
      Value* top = ir.CreateShuffleVector(first, second, low);
      second = ir.CreateShuffleVector(first, second, high);
      first = top;
    }
  }
  return rows;
}

}  // namespace sparsekiln::cpu
