#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tests/kernels/cases.h"
#include "tests/kernels/table.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

void run_blocks_with(std::int32_t outputs) {
  std::vector<Part> parts;
  for (const Case& test : all_cases())
    if (test.options.block.out == outputs)
      parts.push_back({test.to_string(), test.layout->make(), test.options, [&test] { return run(test); }});
  const bool whole = Suite::current().every() == 1;  // in a part of the list, a side may have none
  REQUIRE((!whole || parts.size() >= test_layouts().size()));
  if (!parts.empty()) run_table(parts);
}

}  // namespace

TEST_CASE("the case list has every layout, batch and block") {
  std::set<std::string_view> layouts;
  std::set<std::int64_t> batches;
  std::set<std::string> blocks;
  for (const Case& test : all_cases()) {
    layouts.insert(test.layout->name);
    batches.insert(test.options.batch.bound());
    blocks.insert(to_string(test.options.block));
  }
  CHECK(layouts.size() == test_layouts().size());
  CHECK(batches.size() == 11);
  CHECK(blocks.size() == 25);
  MESSAGE(all_cases().size(), " kernels in the case list");
}

TEST_CASE("the case list has every pair in each kernel family, and shared pairs in one") {
  const CaseArrays& made = case_arrays();
  const bool has_wgmma = Suite::current().device()->target().compute_capability() == 90;
  REQUIRE(made.arrays.size() == (Suite::current().on_cpu() ? 2 : has_wgmma ? 7 : 4));
  CHECK(uncovered(made.families, made.shared, made.arrays).empty());
}

TEST_CASE("blocks of 8 outputs are right for every pair of layout, batch, type and config" *
          doctest::test_suite("tables")) {
  run_blocks_with(8);
}
TEST_CASE("blocks of 16 outputs are right for every pair of layout, batch, type and config" *
          doctest::test_suite("tables")) {
  run_blocks_with(16);
}
TEST_CASE("blocks of 32 outputs are right for every pair of layout, batch, type and config" *
          doctest::test_suite("tables")) {
  run_blocks_with(32);
}
TEST_CASE("blocks of 64 outputs are right for every pair of layout, batch, type and config" *
          doctest::test_suite("tables")) {
  run_blocks_with(64);
}
TEST_CASE("blocks of 128 outputs are right for every pair of layout, batch, type and config" *
          doctest::test_suite("tables")) {
  run_blocks_with(128);
}
