#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "tests/kernels/suite.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

Options tiered_options(Batch batch, const std::string& store) {
  Options options = Suite::current().options({16, 16}, batch);
  options.cache_dir = Suite::current().scratch() / store;
  options.specialization = Specialization::tiered;
  return options;
}

}  // namespace

TEST_CASE("a tiered kernel is attached, then baked, with the same bits and the same workspace") {
  const Layout layout = patterns::random(6, 48, 0.5, 1);
  Options options = tiered_options(33, "tiered");
  if (!Suite::current().on_cpu()) options.target = Suite::current().target_with(132);
  options = Suite::current().with_splits(options, layout);
  const Problem problem = make_problem(layout, options);
  const HostInputs inputs = make_inputs(problem, 33, Inputs::random, 2);
  const Kernel kernel = compile(layout, options);
  const std::int64_t workspace = kernel.workspace_bytes(33);
  const std::vector<std::byte> before = image_of_run(kernel, problem, inputs);
  kernel.wait();
  CHECK(kernel.tier() == Tier::baked);
  CHECK(kernel.workspace_bytes(33) == workspace);
  CHECK(image_of_run(kernel, problem, inputs) == before);
  CHECK(launch_and_check(kernel, problem, inputs).ok);
  if (!Suite::current().on_cpu()) CHECK(workspace > 0);  // otherwise no row is split, and this tests little
}

TEST_CASE("tiered kernels with a pinned config share their attached code, whatever their layouts") {
  if (Suite::current().on_cpu()) return;
  Options options = tiered_options(8192, "pinned");
  options.config = parse_config("simt tile_n=64 tile_out=4 stages=2 warps=4");
  const Kernel first = compile(patterns::random(2, 3, 0.5, 1), options);
  CHECK(first.from() == From::compiled);
  const Kernel second = compile(patterns::random(60, 60, 0.5, 2), options);
  CHECK(second.from() != From::compiled);
  first.wait();
  second.wait();
}

TEST_CASE("a tiered kernel with a pinned config has one workspace, whatever the form of tables costs") {
  if (Suite::current().on_cpu()) return;
  Options options = tiered_options(5000, "pinned");
  options.dtype = DType::f16;
  options.target = Suite::current().target_with(132);
  for (const char* const config :
       {"mma tile_n=64 stages=3 warps=4", "mma tile_n=64 stages=3 warps=4 table=global"}) {
    options.config = parse_config(config);
    const Kernel kernel = compile(patterns::random(35, 200, 0.3, 7), options);
    const std::int64_t workspace = kernel.workspace_bytes(5000);
    const std::int64_t counters = kernel.workspace_counter_bytes();
    kernel.wait();
    CHECK(kernel.tier() == Tier::baked);
    CHECK(kernel.workspace_bytes(5000) == workspace);
    CHECK(kernel.workspace_counter_bytes() == counters);
  }
}

TEST_CASE("a pinned config that no kernel has is refused of tiered kernels, too") {
  if (Suite::current().on_cpu()) return;
  Options options = tiered_options(64, "refused");
  for (const char* const config : {"vector tile_n=8", "mma tile_n=32 stages=2 warps=2 cluster=0"}) {
    options.config = parse_config(config);
    CHECK_THROWS_AS((void)compile(patterns::random(4, 4, 0.5, 1), options), Error);
  }
}

TEST_CASE("if the baked kernel is in the store, compile returns it at once") {
  const Layout layout = patterns::random(5, 7, 0.5, 1);
  const Options options = tiered_options(9, "in-store");
  {
    const Kernel kernel = compile(layout, options);
    kernel.wait();
  }
  const Kernel kernel = compile(layout, options);
  CHECK(kernel.from() == From::store);
  CHECK(kernel.tier() == Tier::baked);
}

namespace {

/// Launches of the attached kernel of one layout, by three threads that go on until the baked one has taken
/// over.
int launches_before_baked(std::uint64_t seed) {
  const Layout layout = patterns::random(5, 7, 0.5, seed);
  const Options options = tiered_options(9, "threads");
  const Problem problem = make_problem(layout, options);
  const HostInputs inputs = make_inputs(problem, 9, Inputs::small_integers, 2);
  const Kernel kernel = compile(layout, options);
  std::atomic<int> wrong = 0;
  std::atomic<int> attached = 0;
  std::vector<std::future<void>> threads;
  for (int i = 0; i < 3; ++i)
    threads.push_back(std::async(std::launch::async, [&] {
      for (int after = 0; after < 3;) {
        if (kernel.tier() == Tier::baked)
          ++after;
        else
          ++attached;
        if (!launch_and_check(kernel, problem, inputs).ok) ++wrong;
      }
    }));
  for (std::future<void>& thread : threads) thread.get();
  CHECK(wrong == 0);
  CHECK(kernel.tier() == Tier::baked);
  return attached;
}

}  // namespace

// Where the tests' NVRTC remembers the code, the baked kernel may be there before any thread.
TEST_CASE("threads that launch while the baked kernel takes over all get the right result") {
  if (Suite::current().on_cpu()) return;
  int attached = 0;
  for (std::uint64_t seed = 3; seed < 13 && attached == 0; ++seed) attached = launches_before_baked(seed);
  CHECK(attached > 0);
}

TEST_CASE("the last handle of a tiered kernel may be destroyed while the baked one is compiled") {
  if (Suite::current().on_cpu()) return;
  const Layout layout = patterns::random(5, 7, 0.5, 4);
  const Options options = tiered_options(9, "dropped");
  (void)compile(layout, options);
  CHECK(compile(layout, options).from() == From::store);  // it was finished, and kept
}

TEST_CASE("if baking fails, the attached kernel stays in use, and waiting says why") {
  if (Suite::current().on_cpu()) return;
  // Unrolled tables are refused for such a long layout; the same config with attached tables is not.
  const Layout layout = patterns::random(20, 20, 0.9, 1);
  Options options = tiered_options(9, "failing");
  Options plain = options;
  plain.specialization = Specialization::baked;
  Config config = compile(layout, plain).binary().plan.front().config;
  config.table = TableForm::unrolled;
  options.config = config;
  const Kernel kernel = compile(layout, options);
  for (int i = 0; i < 2; ++i) CHECK_THROWS_AS(kernel.wait(), Error);
  CHECK(kernel.tier() == Tier::attached);
  const Problem problem = make_problem(layout, options);
  CHECK(launch_and_check(kernel, problem, make_inputs(problem, 9, Inputs::small_integers, 1)).ok);
}

TEST_CASE("a tiered kernel takes no other layout") {
  if (Suite::current().on_cpu()) return;
  const Layout layout = patterns::random(5, 7, 0.5, 5);
  Options options = tiered_options(9, "refused");
  Kernel kernel = compile(layout, options);
  CHECK_THROWS_AS(kernel.relayout(layout), Error);
}

TEST_CASE("the cpu target returns the baked kernel for a tiered request") {
  if (!Suite::current().on_cpu()) return;
  const Layout layout = patterns::random(5, 7, 0.5, 6);
  Options options = Suite::current().options({16, 16}, 9);
  options.specialization = Specialization::tiered;
  CHECK(compile(layout, options).tier() == Tier::baked);
}
