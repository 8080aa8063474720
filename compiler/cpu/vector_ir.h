#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <sparsekiln/problem.h>

#include "compiler/cpu/level.h"

namespace sparsekiln::cpu {

/// IRBuilder in the terms of the kernels: byte addresses, aligned vectors, loops that carry
/// values. The current insertion point is always the end of an open block.
class VectorIr {
 public:
  using Value = llvm::Value;
  using Values = std::vector<llvm::Value*>;

  VectorIr(llvm::Module& module, const Level& level);

  /// Opens `void name(const Call* call, i32 worker, i32 batch_tile)` and makes it current.
  llvm::Function* begin_pass(std::string_view name);
  void end_pass() { ir.CreateRetVoid(); }

  [[nodiscard]] Value* constant(std::int64_t value) { return ir.getInt64(static_cast<std::uint64_t>(value)); }
  [[nodiscard]] llvm::FixedVectorType* floats(std::int32_t lanes);
  [[nodiscard]] llvm::FixedVectorType* ints(std::int32_t lanes);

  [[nodiscard]] Value* at(Value* base, Value* bytes, const char* name = "");
  [[nodiscard]] Value* at(Value* base, std::int64_t bytes) {
    return bytes == 0 ? base : at(base, constant(bytes));
  }
  /// As `at`, for an address that may be outside the memory of `base`: to be prefetched, never to be read.
  [[nodiscard]] Value* beyond(Value* base, Value* bytes) { return ir.CreateGEP(ir.getInt8Ty(), base, bytes); }
  [[nodiscard]] Value* beyond(Value* base, std::int64_t bytes) { return beyond(base, constant(bytes)); }
  /// The address in a register of its own. LLVM would else take it apart, keep the sum of its invariant terms
  /// and each constant on the stack, and load an address for every load of the main loop.
  [[nodiscard]] Value* settled(Value* address);
  /// Values as they are, in registers, at this point of the program: what makes them is computed before, and
  /// no later load is moved up. LLVM's scheduler would else hoist loads until the sums do not fit the
  /// registers.
  [[nodiscard]] Values pinned(const Values& values);
  /// A vector of 128 bits or more in a register of its own: what makes it is not folded into its store.
  [[nodiscard]] Value* in_register(Value* vector);
  [[nodiscard]] Value* times(Value* value, std::int64_t factor);
  /// A number that is not negative, divided.
  [[nodiscard]] Value* quotient(Value* value, std::int64_t divisor);
  [[nodiscard]] Value* plus(Value* a, Value* b) { return ir.CreateAdd(a, b); }
  [[nodiscard]] Value* load(llvm::Type* type, Value* address, unsigned align, const char* name = "");
  void store(Value* value, Value* address, unsigned align);
  /// As `load`, from memory that no thread writes during a launch: stores do not keep LLVM from moving it.
  [[nodiscard]] Value* unchanging(llvm::Type* type, Value* address, unsigned align, const char* name = "");
  /// A field of the pass's Call.
  [[nodiscard]] Value* argument(llvm::Type* type, std::size_t offset, const char* name) {
    return load(type, at(call, static_cast<std::int64_t>(offset)), 8, name);
  }
  /// The i32 at `index` of a table of the layout, widened.
  [[nodiscard]] Value* entry(Value* table, Value* index, const char* name);
  enum class Cache : std::uint8_t { first, second };
  /// Into this cache and all larger ones.
  void prefetch(Value* address, Cache cache = Cache::first);
  [[nodiscard]] Value* splat(Value* scalar, std::int32_t lanes);

  /// for (i = begin; i < end; ++i) body(i)
  void loop(std::string_view name, Value* begin, Value* end, const std::function<void(Value*)>& body);
  /// The same, carrying values: body takes them and returns the next ones; the last ones are returned.
  [[nodiscard]] Values loop(std::string_view name, Value* begin, Value* end, Values carried,
                            const std::function<Values(Value*, const Values&)>& body);
  void branch(std::string_view name, Value* condition, const std::function<void()>& then);
  /// condition ? then() : otherwise; what `then` reads is read only where the condition holds.
  [[nodiscard]] Value* choose(std::string_view name, Value* condition, Value* otherwise,
                              const std::function<Value*()>& then);

  /// acc + a·b, fused where the level fuses. On other levels rounded twice: the fused product would be a call
  /// into the C library, some fifty times slower.
  [[nodiscard]] Value* multiply_add(Value* a, Value* b, Value* acc);
  /// Transposes a square of rows.size() vectors with as many lanes (a power of two): Eklundh 1972, log2
  /// rounds of exchanging off-diagonal halves.
  [[nodiscard]] Values transpose(Values rows);
  /// What an element of `type` is loaded and stored as.
  [[nodiscard]] llvm::Type* element_type(DType type);
  /// `lanes` elements at `address` in the type that they are summed in (sum_type, of integers int32),
  /// exactly.
  [[nodiscard]] Value* load_floats(DType type, Value* address, std::int32_t lanes, unsigned align);
  /// The same in two steps: the elements in their own type, then as they are summed.
  [[nodiscard]] Value* load_elements(DType type, Value* address, std::int32_t lanes, unsigned align);
  [[nodiscard]] Value* widened(DType type, Value* elements);
  /// As load_elements, from `base[first]` on, but zeros from `base[end]` on, which are not read; end > 0.
  [[nodiscard]] Value* load_clipped(DType type, Value* base, Value* first, Value* end, std::int32_t lanes);
  /// Sums as `type`, to be stored: nearest, ties to even, overflow to infinity, NaN kept and made quiet.
  /// `short_nans`: they are quiet, and zero in the bits that bf16 lacks, as what is computed of bf16 is.
  [[nodiscard]] Value* rounded_to(DType type, Value* values, bool short_nans = false);

  llvm::Module& module;
  const Level& level;
  llvm::IRBuilder<> ir;
  Value* call = nullptr;    ///< parameters of the current pass
  Value* worker = nullptr;  ///< widened to i64
  Value* batch_tile = nullptr;
};

}  // namespace sparsekiln::cpu
