#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/patterns.h>

#include "autotune/default_plan.h"
#include "runtime/build_job.h"
#include "tests/counters/default_launch.h"

// A convolution that is given its layout as tables does what the baked one does, and loads the tables:
// counted on one image of layers whose configs are chosen for 32.

namespace sparsekiln::test {
namespace {

struct Sums {
  std::uint64_t executed = 0;
  std::uint64_t sectors = 0;
  std::uint64_t bytes = 0;
  std::uint64_t wavefronts = 0;
  std::uint64_t products = 0;
  friend bool operator==(const Sums&, const Sums&) = default;

  void add(const cuda::CountedLine& line) {
    executed += line.executed;
    sectors += line.global_sectors;
    bytes += line.global_bytes;
    wavefronts += line.shared_wavefronts;
    products += line.tensor_operations;
  }
};

/// A table's elements come with instructions of these kinds.
bool loads_tables(const std::string& kind) {
  return kind == "branch" || kind == "conversion" || kind == "integer" || kind == "memory_constant" ||
         kind == "memory_param" || kind == "move" || kind == "predicate" || kind == "warp";
}

struct Counts {
  std::map<std::string, Sums> work;  ///< by kind, without what loads tables
  Sums loads;                        ///< from global memory, but for copies into shared memory
  Sums all;

  /// `waits`: warps wait for the copy engine and for products, and ask as often as they come too early.
  Counts(const std::vector<cuda::CountedLine>& lines, bool waits) {
    for (const cuda::CountedLine& line : lines) {
      all.add(line);
      if (waits && (line.kind == "barrier" || line.instruction.starts_with("wgmma.wait_group"))) continue;
      if (line.kind == "memory_global" && line.instruction.starts_with("ld."))
        loads.add(line);
      else if (!loads_tables(line.kind))
        work[line.kind].add(line);
    }
  }
};

struct Layer {
  std::int32_t channels;
  std::int32_t side;
  Operation operation;
};

}  // namespace

TEST_CASE("an attached convolution has the counters of the baked one but for what loads its tables") {
  const Target target = Target::parse("h100");
  for (const auto& [channels, side, operation] : {Layer{256, 56, Operation::forward},
                                                  {512, 28, Operation::forward},
                                                  {128, 56, Operation::forward},
                                                  {256, 56, Operation::grad_input},
                                                  {128, 56, Operation::grad_input}}) {
    CAPTURE(channels);
    CAPTURE(name(operation));
    const Layout layout = patterns::random(channels / 32, channels / 32, 0.1, 7);
    const std::string geometry = fmt::format("kernel=3x3 padding=1 input={}x{}", side, side);
    Options options{.block = {32, 32},
                    .batch = 32,
                    .dtype = DType::bf16,
                    .operation = operation,
                    .convolution = parse_convolution(geometry),
                    .target = "emulated:sm_90"};
    const Problem problem = make_problem(layout, options);
    const Plan plan = choose_plan(problem, target);
    const Plan attached_plan = at_layout(choose_attached_plan(problem, target), problem, target);
    REQUIRE(attached_plan == with_attached_tables(plan));

    options.batch = 1;
    options.config = plan.front().config;
    const DefaultLaunch baked = launch_once(layout, options);
    options.config = attached_plan.front().config;
    options.specialization = Specialization::attached;
    const DefaultLaunch attached = launch_once(layout, options);
    CHECK(attached.kernel.binary().entries.front().workers == baked.kernel.binary().entries.front().workers);

    const bool waits = baked.config.variant == Variant::halo;
    const Counts of_baked(baked.lines, waits);
    const Counts of_attached(attached.lines, waits);
    CHECK(of_baked.work.contains("tensor"));
    std::string differ;  // kinds
    for (const auto& [kind, sums] : of_baked.work)
      if (!of_attached.work.contains(kind) || of_attached.work.at(kind) != sums) differ += kind + ' ';
    CHECK(differ == "");
    CHECK(of_baked.work.size() == of_attached.work.size());
    CHECK(of_attached.loads.bytes > of_baked.loads.bytes);
    CHECK(10 * (of_attached.loads.sectors - of_baked.loads.sectors) < of_baked.all.sectors);
    CHECK(static_cast<double>(of_attached.all.executed) < 1.06 * static_cast<double>(of_baked.all.executed));
  }
}

}  // namespace sparsekiln::test
