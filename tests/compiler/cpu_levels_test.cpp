#include "compiler/cpu_levels.h"

#include <string>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

namespace sparsekiln::cpu {
namespace {

TEST_CASE("every level is found by its name, as a target and in the list of names") {
  std::string listed;
  for (const Level& level : levels()) {
    CAPTURE(level.name);
    const Target target = Target::parse(level.name);
    CHECK(target.kind == Target::Kind::cpu);
    CHECK(&level_of(target) == &level);
    if (!listed.empty()) listed += ", ";
    listed += level.name;
  }
  CHECK(level_names() == listed);
}

TEST_CASE("a host runs its own level, those before it, and generic code") {
  CHECK(runs("x86-64-v3", "x86-64-v3"));
  CHECK(runs("x86-64-v4-bf16", "x86-64"));
  CHECK(runs("x86-64", "generic"));
  CHECK(runs("generic", "generic"));
  CHECK_FALSE(runs("x86-64-v3", "x86-64-v4"));
  CHECK_FALSE(runs("generic", "x86-64"));
  CHECK_FALSE(runs("x86-64", "x86-64-v9"));
}

TEST_CASE("each level of x86-64 has what the one before has") {
  const Level* before = nullptr;
  for (const Level& level : levels()) {
    if (level.name == "generic") continue;
    CAPTURE(level.name);
    if (before != nullptr) {
      CHECK(level.lanes >= before->lanes);
      CHECK(level.registers >= before->registers);
      CHECK(level.fused >= before->fused);
      CHECK(level.f16c >= before->f16c);
      CHECK(level.dot_bf16 >= before->dot_bf16);
      CHECK_FALSE(level.host_features.empty());
    }
    before = &level;
  }
}

TEST_CASE("a target that is no level of the cpu is refused with the levels that there are") {
  CHECK_THROWS_WITH_AS((void)level_of({Target::Kind::cuda, "sm_80", 1}),
                       ("the cpu target has no level 'sm_80'; it has " + level_names()).c_str(), Error);
}

}  // namespace
}  // namespace sparsekiln::cpu
