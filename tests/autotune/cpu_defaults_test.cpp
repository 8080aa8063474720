#include "autotune/cpu_defaults.h"

#include <doctest/doctest.h>

#ifdef SPARSEKILN_CPU
#include "compiler/cpu/emit.h"
#endif

namespace sparsekiln::cpu {
namespace {

constexpr const char* kLevels[] = {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "generic"};

#ifdef SPARSEKILN_CPU
TEST_CASE("the cpu's default config is one that the level can run, whatever n") {
  for (const char* level : kLevels)
    for (std::int64_t n = 0; n < 300; ++n) {
      const Target target{Target::Kind::cpu, level, 2};
      CAPTURE(level);
      CAPTURE(n);
      CHECK_NOTHROW(validate({}, target, default_config(target, n)));
    }
}
#endif

TEST_CASE("the cpu's default tile computes few tokens that are not there") {
  for (const char* level : kLevels) {
    const Target target{Target::Kind::cpu, level, 2};
    CHECK(default_config(target, 32).tile_n == 32);
    CHECK(default_config(target, 64).tile_n == 64);
    CHECK(default_config(target, 1).tile_n <= 16);
    CHECK(default_config(target, 8192).tile_n == 64);
  }
  CHECK(default_config({Target::Kind::cpu, "x86-64-v3", 2}, 96).tile_n == 48);
  CHECK(default_config({Target::Kind::cpu, "x86-64-v3", 2}, 33).tile_n == 48);
  CHECK(default_config({Target::Kind::cpu, "x86-64-v4", 2}, 33).tile_n == 64);
}

}  // namespace
}  // namespace sparsekiln::cpu
