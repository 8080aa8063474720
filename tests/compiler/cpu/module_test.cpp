#include "compiler/cpu/module.h"

#include <doctest/doctest.h>

namespace sparsekiln::cpu {
namespace {

TEST_CASE("tables of equal numbers are one array of the module") {
  EmittedModule module(Target{Target::Kind::cpu, "x86-64-v3", 1});
  const llvm::GlobalVariable* const first = module.table("columns_8", {3, 1, 4});
  CHECK(module.table("columns_16", {3, 1, 4}) == first);
  CHECK(module.table("columns_32", {3, 1, 5}) != first);
  CHECK(module.table("items_8", {3, 1, 4, 0}) != first);
  const std::string text = module.text("");
  CHECK(text.find("@columns_8 ") != std::string::npos);
  CHECK(text.find("@columns_16") == std::string::npos);
}

}  // namespace
}  // namespace sparsekiln::cpu
