#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cpu/vector_ir.h"

namespace sparsekiln::cpu {

/// The LLVM module of one Source while it is written: what the emitters of all operations begin and end with.
class EmittedModule {
 public:
  explicit EmittedModule(const Target& target);

  [[nodiscard]] VectorIr& ir() { return ir_; }
  /// A constant array of 32-bit numbers, aligned to a cache line. Equal ones, as entries of one schedule
  /// have, are one array, which has the first one's name.
  llvm::GlobalVariable* table(const std::string& name, const std::vector<std::int32_t>& values);
  /// `heading`, then the textual IR, verified. Throws `internal` where it is malformed.
  [[nodiscard]] std::string text(const std::string& heading) const;

 private:
  llvm::LLVMContext context_;
  llvm::Module module_;
  VectorIr ir_;
  std::map<const llvm::Constant*, llvm::GlobalVariable*> tables_;  ///< by their values
};

/// Throws `invalid_argument` for what no operation has on the cpu target: variants, math and fields of a
/// config that are for GPUs.
void validate_config(const Computation& what, const Target& target, const Config& config);

}  // namespace sparsekiln::cpu
