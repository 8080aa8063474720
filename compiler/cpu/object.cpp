#include "compiler/cpu/object.h"

#include <algorithm>
#include <memory>
#include <mutex>

#include <llvm/AsmParser/Parser.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Pass.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/Scalar.h>

#include <sparsekiln/error.h>

#include "compiler/cpu_levels.h"
#include "system/deep_stack.h"
#include "system/times.h"

namespace sparsekiln::cpu {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& log, const std::string& source) {
  throw Error(ErrorKind::compile, what + (log.empty() ? "" : ": " + log), log, source);
}

std::unique_ptr<llvm::TargetMachine> machine_for(const Level& level, const std::string& source) {
  initialise_llvm();
  const std::string triple =
      level.triple.empty() ? llvm::sys::getDefaultTargetTriple() : std::string(level.triple);
  std::string why;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, why);
  if (target == nullptr)
    refuse("level " + std::string(level.name) + " cannot be compiled for on this host", why, source);
  llvm::TargetOptions options;
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(triple, level.cpu, level.features, options, llvm::Reloc::PIC_,
                                  llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

/// Catches an error of code generation, which LLVM would print before it ended the process.
void note_errors(const llvm::DiagnosticInfo* info, void* log) {
  if (info->getSeverity() != llvm::DS_Error) return;
  llvm::raw_string_ostream stream(*static_cast<std::string*>(log));
  llvm::DiagnosticPrinterRawOStream printer(stream);
  info->print(printer);
  stream << '\n';
}

}  // namespace

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
  });
}

namespace {

llvm::SmallVector<char, 0> compiled(const std::string& module_text, const Target& target) {
  const Level& level = level_of(target);
  const auto machine = machine_for(level, module_text);
  std::string errors;
  llvm::LLVMContext context;
  context.setDiagnosticHandlerCallBack(note_errors, &errors);
  llvm::SMDiagnostic diagnostic;
  const auto module = llvm::parseAssemblyString(module_text, diagnostic, context);
  if (module == nullptr) {
    std::string log;
    llvm::raw_string_ostream stream(log);
    diagnostic.print("module", stream, false);
    refuse("LLVM could not read the module", stream.str(), module_text);
  }
  module->setTargetTriple(machine->getTargetTriple().str());
  module->setDataLayout(machine->createDataLayout());

  // The emitter writes vector code as it should run: only the redundancies of address arithmetic are removed,
  // and nothing that would vectorise, unroll or reorder.
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  passes.add(llvm::createEarlyCSEPass());
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    refuse("LLVM cannot write an object for " + std::string(level.name), "", module_text);
  passes.run(*module);
  if (!errors.empty()) refuse("LLVM could not compile the module", errors, module_text);
  return bytes;
}

}  // namespace

std::vector<std::byte> compile_object(const std::string& module_text, const Target& target) {
  llvm::SmallVector<char, 0> bytes;
  on_deep_stack([&] {
    const Timed timed("llvm");
    bytes = compiled(module_text, target);
  });
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  return {data, data + bytes.size()};
}

std::string compiler_version() { return "LLVM " LLVM_VERSION_STRING; }

namespace {

std::string asked_host_level() {
  if (!llvm::Triple(llvm::sys::getProcessTriple()).isX86()) return "generic";
  const llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  std::string best;
  for (const Level& level : levels()) {
    const bool has_all = std::all_of(level.host_features.begin(), level.host_features.end(),
                                     [&](std::string_view feature) { return features.lookup(feature); });
    if (!has_all || level.name == "generic") break;
    best = level.name;
  }
  return best;
}

}  // namespace

std::string host_level() {
  static const std::string level = asked_host_level();  // asking takes long on a virtual machine
  return level;
}

}  // namespace sparsekiln::cpu
