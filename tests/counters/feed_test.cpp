#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>
#include <sparsekiln/patterns.h>

#include "tests/counters/default_launch.h"

// What it costs to know where the next chunks are: their steps are loaded 32 at a time, and not each while
// the copies that were queued before it are under way.

namespace sparsekiln::test {
namespace {

constexpr std::int64_t kOutBlocks = 4;
constexpr std::int64_t kBatch = 128;

/// A kernel whose copies go through stages that several chunks share.
struct Ring {
  const char* config;
  std::int64_t warps;  ///< that go through all steps of a worker
  BlockShape block = {32, 32};
  DType dtype = DType::f16;
  std::int64_t loads = 1;  ///< that bring a lane what it holds of 32 steps
  Options options = {};
};

/// Loads from global memory of a product without absent blocks: of whole warps, and no copies.
std::int64_t loads_of(const Ring& ring, std::int64_t in_blocks, TableForm table) {
  Options options = ring.options;
  options.block = ring.block;
  options.batch = kBatch;
  options.dtype = ring.dtype;
  options.target = "emulated:sm_90:4";
  options.config = parse_config(ring.config);
  options.config->table = table;
  if (table == TableForm::attached) options.specialization = Specialization::attached;
  const Layout layout = options.operation == Operation::forward
                            ? patterns::random(kOutBlocks, in_blocks, 1, 1)
                            : patterns::random(in_blocks, kOutBlocks, 1, 1);
  std::int64_t loads = 0;
  for (const cuda::CountedLine& line : launch_once(layout, options).lines)
    if (line.kind == "memory_global" && line.instruction.starts_with("ld."))
      loads += static_cast<std::int64_t>(line.executed);
  return loads;
}

void check_loads(const Ring& ring, TableForm table) {
  CAPTURE(std::string(ring.config));
  CAPTURE(name(table));
  CAPTURE(ring.options.block_scales);
  constexpr std::int64_t kShort = 64;
  constexpr std::int64_t kLong = 128;
  const std::int64_t tiles = kBatch / parse_config(ring.config).tile_n;
  const std::int64_t steps = kOutBlocks * (kLong - kShort);
  CHECK(loads_of(ring, kLong, table) - loads_of(ring, kShort, table) ==
        tiles * ring.warps * steps / 32 * ring.loads);
}

}  // namespace

TEST_CASE("longer rows cost the warps of a ring a load for each 32 steps") {
  const std::vector<Ring> rings = {
      {.config = "mma tile_n=64 warps=2 stages=4", .warps = 2},
      {.config = "mma tile_n=64 warps=2 stages=1", .warps = 2},
      {.config = "mma tile_n=64 warps=4 stages=4 rows=2", .warps = 4},
      {.config = "mma tile_n=64 warps=2 stages=4", .warps = 2, .block = {8, 8}},
      {.config = "mma tile_n=64 warps=2 stages=4 merge=2", .warps = 2, .loads = 2},
      {.config = "mma tile_n=64 warps=2 stages=6 merge=4", .warps = 2, .block = {8, 8}, .loads = 2},
      {.config = "mma tile_n=64 warps=2 stages=4",
       .warps = 2,
       .options = {.operation = Operation::grad_input}},
      {.config = "simt tile_n=32 tile_out=4 warps=2 stages=3", .warps = 2, .dtype = DType::f32},
      {.config = "simt tile_n=32 tile_out=4 warps=2 stages=2 rows=2", .warps = 2, .dtype = DType::f32},
      {.config = "wgmma tile_n=128 warps=12 stages=3", .warps = 1, .block = {64, 64}},
      {.config = "wgmma tile_n=128 warps=12 stages=3 rows=2", .warps = 1, .block = {64, 64}},
      {.config = "wgmma tile_n=128 warps=12 stages=3 merge=2", .warps = 1, .block = {64, 64}, .loads = 2},
  };
  for (const Ring& ring : rings)
    for (const TableForm table : {TableForm::global, TableForm::attached}) check_loads(ring, table);
}

TEST_CASE("the scales of 32 blocks are loaded at a time, also where the schedule is in constant memory") {
  const Options block_scales = {.block_scales = true};
  for (Ring ring : {Ring{.config = "mma tile_n=64 warps=2 stages=4", .warps = 2, .options = block_scales},
                    Ring{.config = "simt tile_n=32 tile_out=4 warps=2 stages=3",
                         .warps = 2,
                         .dtype = DType::f32,
                         .options = block_scales}})
    for (const TableForm table : {TableForm::constant, TableForm::global, TableForm::attached}) {
      ring.loads = table == TableForm::constant ? 1 : 2;
      check_loads(ring, table);
    }
}

}  // namespace sparsekiln::test
