#include "autotune/cpu/defaults.h"

#include <string_view>

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

#ifdef SPARSEKILN_CPU
#include "compiler/cpu/emit.h"
#include "compiler/cpu/sddmm.h"
#endif

namespace sparsekiln::cpu {
namespace {

constexpr const char* kLevels[] = {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "generic"};

#ifdef SPARSEKILN_CPU
TEST_CASE("float64 gets configs that plain passes can run, whatever the operation and n") {
  Problem problem;
  problem.dtype = problem.out_dtype = DType::f64;
  for (const char* level : kLevels)
    for (const std::int64_t n : {0, 1, 3, 15, 33, 48, 300, 1 << 30}) {
      CAPTURE(level);
      CAPTURE(n);
      const Target target{Target::Kind::cpu, level, 2};
      for (const Operation operation : {Operation::forward, Operation::grad_input}) {
        problem.operation = operation;
        CHECK_NOTHROW(validate(problem, target, default_config(problem, target, n)));
      }
      problem.operation = Operation::grad_weight;
      const Sddmm gradient(problem);
      CHECK_NOTHROW(validate(gradient, target, default_config(gradient, target, n)));
    }
}

TEST_CASE("the gradient of the input gets a config that the level can run, whatever n") {
  Problem problem;
  problem.operation = Operation::grad_input;
  for (const char* level : {"x86-64", "x86-64-v3", "x86-64-v4", "x86-64-v4-bf16"})
    for (const std::int64_t n : {0, 1, 2, 4, 5, 33, 300}) {
      CAPTURE(level);
      CAPTURE(n);
      const Target target{Target::Kind::cpu, level, 2};
      CHECK_NOTHROW(validate(problem, target, default_config(problem, target, n)));
    }
}

TEST_CASE("the gradient of the weight gets a config that the level can run, whatever n and the block") {
  Problem problem;
  problem.operation = Operation::grad_weight;
  for (const char* level : kLevels)
    for (const std::int32_t side : {8, 16, 32, 64, 128})
      for (const std::int64_t n : {0, 1, 15, 16, 300, 1 << 30}) {
        CAPTURE(level);
        CAPTURE(side);
        CAPTURE(n);
        problem.block = {128, side};
        const Sddmm gradient(problem);
        const Target target{Target::Kind::cpu, level, 2};
        CHECK_NOTHROW(validate(gradient, target, default_config(gradient, target, n)));
      }
}

TEST_CASE("the cpu's default config is one that the level can run, whatever n") {
  for (const char* level : kLevels)
    for (std::int64_t n = 0; n < 300; ++n) {
      const Target target{Target::Kind::cpu, level, 2};
      CAPTURE(level);
      CAPTURE(n);
      CHECK_NOTHROW(validate(Problem(), target, default_config(Problem(), target, n)));
    }
}
#endif

TEST_CASE("the gradient of the weight packs batches that are large enough and fit the limit") {
  Problem problem;
  problem.operation = Operation::grad_weight;
  problem.layout = patterns::random(100, 100, 0.1, 1);
  const Sddmm gradient(problem);
  const Target target{Target::Kind::cpu, "x86-64-v3", 2};
  CHECK(default_config(gradient, target, 8).stages == 1);
  CHECK(default_config(gradient, target, 64).stages == 2);
  CHECK(default_config(gradient, target, 1 << 20).stages == 1);
}

TEST_CASE("the cpu's default tile computes few batch rows that are not there") {
  for (const char* level : kLevels) {
    const Target target{Target::Kind::cpu, level, 2};
    CHECK(default_config(Problem(), target, 32).tile_n == 32);
    CHECK(default_config(Problem(), target, 64).tile_n ==
          (std::string_view(level).starts_with("x86-64-v") ? 32 : 64));
  }
  for (const char* level : {"x86-64-v3", "x86-64-v4"}) {
    const bool four_vectors = std::string_view(level) == "x86-64-v4";  // of sixteen
    const Target target{Target::Kind::cpu, level, 2};
    CHECK(default_config(Problem(), target, 8192).tile_n == (four_vectors ? 64 : 32));
    CHECK(default_config(Problem(), target, 128).tile_n == (four_vectors ? 64 : 32));
    CHECK(default_config(Problem(), target, 160).tile_n ==
          32);  // else a third of the batch rows were missing
    Problem narrow;
    narrow.block = {8, 8};
    CHECK(default_config(narrow, target, 8192).tile_n == 32);
  }
  CHECK(default_config(Problem(), {Target::Kind::cpu, "x86-64-v3", 2}, 96).tile_n == 32);
  CHECK(default_config(Problem(), {Target::Kind::cpu, "x86-64-v3", 2}, 33).tile_n == 48);
  CHECK(default_config(Problem(), {Target::Kind::cpu, "x86-64-v4", 2}, 33).tile_n == 32);
}

TEST_CASE("small blocks that are not contiguous are read for as many batch rows at once as others") {
  Problem problem;
  problem.block = {8, 8};
  const auto tile = [&](std::int64_t n) {
    return default_config(problem, {Target::Kind::cpu, "x86-64-v3", 1}, n).tile_n;
  };
  CHECK(tile(256) == 32);
  problem.operation = Operation::grad_input;
  CHECK(tile(256) == 32);
}

TEST_CASE("up to four batch rows the cpu's default is one small tile with one share a thread") {
  for (const char* level : {"x86-64-v3", "x86-64-v4"}) {
    const Target target{Target::Kind::cpu, level, 2};
    CHECK(default_config(Problem(), target, 1).tile_n == 1);
    CHECK(default_config(Problem(), target, 2).tile_n == 2);
    CHECK(default_config(Problem(), target, 3).tile_n == 4);
    CHECK(default_config(Problem(), target, 4).tile_n == 4);
    CHECK(default_config(Problem(), target, 4).split == 1);
    CHECK(default_config(Problem(), target, 5).tile_n >= 8);
  }
}

TEST_CASE("the cpu's default shares a batch tile out only where whole ones would leave threads idle") {
  const auto split = [](std::int32_t workers, std::int64_t n, std::int64_t rows = 1024) {
    Problem problem;
    problem.layout = patterns::random(rows, 4, 0.5, 1);
    return default_config(problem, {Target::Kind::cpu, "x86-64-v3", workers}, n).split;
  };
  CHECK(split(1, 32) == 1);
  CHECK(split(2, 32) > 1);   // one tile, two threads
  CHECK(split(2, 64) == 1);  // two
  CHECK(split(2, 96) > 1);   // three
  CHECK(split(2, 512) == 1);
  CHECK(split(5, 1024) == 1);  // thirty-two over five
  CHECK(split(2, 32, 128) > 1);
  CHECK(split(2, 32, 127) == 1);  // shares of less than sixteen rows would be split to be even
}

TEST_CASE("the cpu's default makes no shares that take less than handing them out") {
  const auto split = [](double density) {
    Problem problem;
    problem.layout = patterns::random(128, 128, density, 1);
    return default_config(problem, {Target::Kind::cpu, "x86-64-v4", 2}, 32).split;
  };
  CHECK(split(0.01) == 1);
  CHECK(split(0.1) == 4);
}

}  // namespace
}  // namespace sparsekiln::cpu
