#include "compiler/cuda/families.h"

#include <set>
#include <string>

#include <doctest/doctest.h>

#include "templates/templates.h"

namespace sparsekiln::cuda {
namespace {

template <class Families>
void check_templates(Families families) {
  for (const auto* const family : families) {
    CAPTURE(family->function);
    CHECK_NOTHROW((void)templates::text(std::string(family->function) + ".cuh"));
    CHECK(family->tuning->variant == family->variant);
  }
}

TEST_CASE("each family has a template of its name, and the tuner knows it by its variant") {
  check_templates(spmm_families());
  check_templates(sddmm_families());
}

TEST_CASE("a kind of problem has one family of a variant") {
  std::set<Variant> spmm;
  for (const SpmmFamily* const family : spmm_families()) spmm.insert(family->variant);
  CHECK(spmm.size() == spmm_families().size());
  std::set<Variant> sddmm;
  for (const SddmmFamily* const family : sddmm_families()) sddmm.insert(family->variant);
  CHECK(sddmm.size() == sddmm_families().size());
}

TEST_CASE("tensor cores add for every type but float32 with math ieee, where a family uses them") {
  CHECK_FALSE(on_tensor_cores(Variant::simt, true));
  CHECK_FALSE(on_tensor_cores(Variant::simt, false));
  CHECK(on_tensor_cores(Variant::mma, false));
  CHECK(on_tensor_cores(Variant::stream, false));
  CHECK_FALSE(on_tensor_cores(Variant::stream, true));
  CHECK_FALSE(on_tensor_cores(Variant::vector, false));
}

TEST_CASE("members are declared as types, numbers and flags, whatever the order they came in") {
  Declarations members;
  members.flag("async_copy", false);
  members.number("stages", 3, "in flight");
  members.type("Element", "float");
  Declarations others;
  others.number("warps", 4);
  members.append(others);
  CHECK(members.text() ==
        "  using Element = float;\n"
        "  enum : int {\n"
        "    stages = 3,  // in flight\n"
        "    warps = 4,\n"
        "  };\n"
        "  enum : bool {\n"
        "    async_copy = false,\n"
        "  };\n");
}

}  // namespace
}  // namespace sparsekiln::cuda
