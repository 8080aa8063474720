// Takes the place of the other files of this folder where SPARSEKILN_CPU is not defined: without LLVM there
// is no cpu target, and whatever is asked of it is refused.

#include <sparsekiln/error.h>

#include "compiler/cpu/attach.h"
#include "compiler/cpu/emit.h"
#include "compiler/cpu/object.h"
#include "compiler/cpu/sddmm.h"

namespace sparsekiln::cpu {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      ErrorKind::invalid_argument,
      "target cpu: this build of Sparsekiln has no LLVM (meson option cpu); a CUDA target would work");
}

}  // namespace

void validate(const Spmm&, const Target&, const Config&) { refuse(); }
void validate(const Sddmm&, const Target&, const Config&) { refuse(); }
Source emit(const Spmm&, const Target&, const Plan&, const std::vector<Schedule>&) { refuse(); }
Source emit(const Sddmm&, const Target&, const Plan&, const std::vector<BlockRuns>&) { refuse(); }
Recipe recipe_of(const Spmm&, const Target&, const Plan&, const std::vector<Schedule>&) { refuse(); }
Recipe recipe_of(const Sddmm&, const Target&, const Plan&, const std::vector<BlockRuns>&) { refuse(); }
void attach_tables(const Problem&, Binary&) { refuse(); }
std::vector<std::byte> compile_object(const std::string&, const Target&) { refuse(); }
std::string compiler_version() { refuse(); }
std::string host_level() { refuse(); }

}  // namespace sparsekiln::cpu
