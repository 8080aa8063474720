#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/kernels/cases.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

/// Compiles into the store with all threads. What fails here fails again where it is reported.
void build_ahead(const std::vector<const Case*>& cases) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < cases.size(); i = next++) try {
        (void)build(cases[i]->layout->make(), cases[i]->options);
      } catch (const std::exception&) {
      }
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
}

void run_blocks_with(std::int32_t outputs) {
  std::vector<const Case*> cases;
  for (const Case& test : all_cases())
    if (test.options.block.out == outputs) cases.push_back(&test);
  const bool whole = Suite::current().every() == 1;  // of a slice, a side may have none
  REQUIRE((!whole || cases.size() >= test_layouts().size()));
  build_ahead(cases);
  for (const Case* test : cases) {
    const std::string failure = run(*test);
    CHECK_MESSAGE(failure.empty(), failure);
  }
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

TEST_CASE("blocks of 8 outputs are right for every pair of layout, batch, type and config") {
  run_blocks_with(8);
}
TEST_CASE("blocks of 16 outputs are right for every pair of layout, batch, type and config") {
  run_blocks_with(16);
}
TEST_CASE("blocks of 32 outputs are right for every pair of layout, batch, type and config") {
  run_blocks_with(32);
}
TEST_CASE("blocks of 64 outputs are right for every pair of layout, batch, type and config") {
  run_blocks_with(64);
}
TEST_CASE("blocks of 128 outputs are right for every pair of layout, batch, type and config") {
  run_blocks_with(128);
}
