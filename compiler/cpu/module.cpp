#include "compiler/cpu/module.h"

#include <fmt/format.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>
#include <sparsekiln/error.h>

namespace sparsekiln::cpu {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

}  // namespace

EmittedModule::EmittedModule(const Target& target)
    : module_("sparsekiln", context_), ir_(module_, level_of(target)) {
  if (const Level& level = level_of(target); !level.triple.empty()) module_.setTargetTriple(level.triple);
}

llvm::GlobalVariable* EmittedModule::table(const std::string& name, const std::vector<std::int32_t>& values) {
  const std::vector<std::uint32_t> bits(values.begin(), values.end());
  auto* data = llvm::ConstantDataArray::get(context_, llvm::ArrayRef(bits));  // one object for equal values
  llvm::GlobalVariable*& global = tables_[data];
  if (global != nullptr) return global;
  global = new llvm::GlobalVariable(module_, data->getType(), true, llvm::GlobalValue::InternalLinkage, data,
                                    name);
  global->setAlignment(llvm::Align(64));
  return global;
}

std::string EmittedModule::text(const std::string& heading) const {
  std::string result;
  llvm::raw_string_ostream stream(result);
  if (llvm::verifyModule(module_, &stream))
    throw Error(ErrorKind::internal, "emitted a malformed module: " + result);
  stream << heading;
  module_.print(stream, nullptr);
  stream.flush();
  return result;
}

void validate_config(const Computation& what, const Target& target, const Config& config) {
  static_cast<void>(level_of(target));
  const std::string given = to_string(config);
  if (config.variant != Variant::vector)
    refuse(
        fmt::format("config '{}' on {}: the cpu target has the variant 'vector'", given, target.to_string()));
  if (what.math != Math::ieee)
    refuse(fmt::format("math {} on the cpu target: ieee, or a CUDA target of sm_80 or later, would work",
                       name(what.math)));
  if (config.split < 1 || config.split > 64) refuse(fmt::format("config '{}': split is 1 to 64", given));
  if (config.table == TableForm::unrolled)
    refuse(fmt::format(
        "config '{}': the cpu target has its layout as data; table=global or table=attached would work",
        given));
  check_knobs(config);
  if (config.in_flight > 0 || config.split_saves != 0 || config.cluster != 1 || config.cluster_rows != 1)
    refuse(
        fmt::format("config '{}': the cpu takes batch tiles as they come, and splits rows for balance alone; "
                    "split_saves=0 in_flight=all cluster=1 cluster_rows=1 would work",
                    given));
  if (config.operand_a != Config().operand_a)
    refuse(fmt::format("config '{}': the cpu has no tensor core to choose an operand of", given));
}

}  // namespace sparsekiln::cpu
