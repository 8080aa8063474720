#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <sparsekiln/target.h>

namespace sparsekiln::cpu {

/// Optimises and assembles a textual LLVM module into an ELF object for the target's level. Deterministic.
/// Throws `compile` with LLVM's diagnostics and the source.
[[nodiscard]] std::vector<std::byte> compile_object(const std::string& module_text, const Target& target);

/// Registers LLVM's back end for this host; once, from any thread, before LLVM is asked for anything.
void initialise_llvm();

/// "LLVM 19.1.7".
[[nodiscard]] std::string compiler_version();

/// The best level of this host: "x86-64-v4-bf16", "x86-64-v4", "x86-64-v3", "x86-64" or "generic".
[[nodiscard]] std::string host_level();

}  // namespace sparsekiln::cpu
