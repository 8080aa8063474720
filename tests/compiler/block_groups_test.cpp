#include "compiler/block_groups.h"

#include <doctest/doctest.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/patterns.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "compiler/block_runs.h"

using namespace sparsekiln;

namespace {

const Target kH100 = Target::parse("sm_90:132");

Sddmm gradient_of(const Layout& layout, BlockShape block, bool bias = false, std::int64_t n = 8192) {
  Problem problem;
  problem.operation = Operation::grad_weight;
  problem.layout = layout;
  problem.block = block;
  problem.batch = n;
  problem.dtype = problem.out_dtype = DType::bf16;
  problem.bias_gradient = bias;
  return Sddmm(problem);
}

Config grouped(std::int32_t rows, std::int32_t stages) {
  Config config;
  config.variant = Variant::grouped;
  config.tile_n = 32;
  config.rows = rows;
  config.stages = stages;
  return config;
}

/// Rows of very different lengths, and some without blocks.
Layout skewed() {
  std::vector<std::uint8_t> mask(40 * 30);
  for (std::size_t row = 0; row < 40; ++row)
    for (std::size_t col = 0; col < 30; ++col)
      mask[row * 30 + col] = row % 7 != 3 && (row < 2 || (row * 5 + col * 3) % 11 == 0) ? 1 : 0;
  return Layout::from_mask(40, 30, mask);
}

std::int64_t tiles_of(const std::vector<BlockGroup>& groups) {
  std::int64_t tiles = 0;
  for (const BlockGroup& group : groups) tiles += group.tiles();
  return tiles;
}

}  // namespace

TEST_CASE("every piece of a block is in one group, which reads its tile of dy and its tile of x") {
  const std::vector<Layout> layouts{skewed(), patterns::random(24, 60, 0.03, 1), patterns::random(5, 7, 1, 2),
                                    Layout::from_mask(3, 2, std::vector<std::uint8_t>{0, 0, 0, 1, 0, 0})};
  for (const Layout& layout : layouts)
    for (const BlockShape block : {BlockShape{64, 64}, {128, 64}, {64, 128}, {128, 128}})
      for (const auto& [rows, stages] : {std::pair{12, 4}, {12, 6}, {6, 3}, {6, 5}})
        for (const bool bias : {false, true}) {
          CAPTURE(fmt::format("{} blocks of {}, rows={} stages={}, bias {}", layout.blocks(),
                              to_string(block), rows, stages, bias));
          const Sddmm gradient = gradient_of(layout, block, bias);
          const Config config = grouped(rows, stages);
          const std::vector<BlockGroup> groups = make_block_groups(gradient, kH100, config);
          const GroupShape shape = group_shape(gradient, config);
          CHECK(static_cast<std::int64_t>(groups.size()) <= group_bound(gradient, config));
          std::set<std::int32_t> seen;
          std::multiset<std::int32_t> summed;
          for (const BlockGroup& group : groups) {
            CHECK(group.pieces.size() <= static_cast<std::size_t>(rows));
            CHECK(group.bytes(shape) <= shape.place_bytes);
            CHECK(group.summed <= (bias ? rows : 0));
            CHECK(std::set(group.outs.begin(), group.outs.end()).size() == group.outs.size());
            CHECK(std::set(group.ins.begin(), group.ins.end()).size() == group.ins.size());
            summed.insert(group.outs.begin(), group.outs.begin() + group.summed);
            for (const BlockGroup::Piece& piece : group.pieces) {
              CHECK(seen.insert(piece.dw).second);
              // The block of dw that the piece is a part of.
              const std::int64_t element = std::int64_t{64} * piece.dw;
              const auto of_block = element / gradient.block_elements();
              const auto within = element % gradient.block_elements();
              const auto crow = layout.crow();
              const auto row = std::upper_bound(crow.begin(), crow.end(), of_block) - crow.begin() - 1;
              const std::int64_t col = layout.col()[static_cast<std::size_t>(of_block)];
              CHECK(std::int64_t{64} * group.outs[static_cast<std::size_t>(piece.out)] ==
                    row * block.out + within / block.in);
              CHECK(std::int64_t{64} * group.ins[static_cast<std::size_t>(piece.in)] ==
                    col * block.in + within % block.in);
            }
          }
          for (const BlockGroup& group : groups) {
            CHECK(group.pairs.size() <= static_cast<std::size_t>(rows / 2));
            std::vector<bool> paired(group.pieces.size());
            for (const auto& [one, other] : group.pairs) {
              for (const std::int32_t piece : {one, other})
                if (piece != BlockGroup::kNone) {
                  CHECK_FALSE(paired[static_cast<std::size_t>(piece)]);
                  paired[static_cast<std::size_t>(piece)] = true;
                }
              REQUIRE(one != BlockGroup::kNone);
              if (other == BlockGroup::kNone) continue;
              const BlockGroup::Piece& first = group.pieces[static_cast<std::size_t>(one)];
              const BlockGroup::Piece& second = group.pieces[static_cast<std::size_t>(other)];
              CHECK(((first.out == second.out && first.in < second.in) ||
                     (first.in == second.in && first.out < second.out)));
            }
            CHECK(std::count(paired.begin(), paired.end(), false) == 0);
          }
          CHECK(static_cast<std::int64_t>(seen.size()) == pieces_of(gradient, shape));
          CHECK(summed.size() == (bias ? static_cast<std::size_t>(layout.rows() * block.out / 64) : 0));
          CHECK(std::set(summed.begin(), summed.end()).size() == summed.size());
        }
}

TEST_CASE(
    "every piece of a convolution is in one group, whose pairs share a row and fit a place with borders") {
  const Layout layout = patterns::random(7, 6, 0.3, 2);
  for (const char* geometry : {"kernel=3x3 padding=1 input=28x28", "kernel=3x3x2 input=6x9x9",
                               "kernel=3x3 stride=2 padding=1 input=28x28"})
    for (const BlockShape block : {BlockShape{32, 32}, {64, 32}, {96, 64}, {128, 128}})
      for (const auto& [tile_n, stages, rows] : {std::tuple{64, 2, 42}, {112, 3, 24}, {32, 4, 6}}) {
        Problem problem;
        problem.operation = Operation::grad_weight;
        problem.layout = layout;
        problem.block = block;
        problem.batch = 32;
        problem.dtype = problem.out_dtype = DType::bf16;
        problem.convolution = parse_convolution(geometry);
        const Sddmm gradient(problem);
        Config config = grouped(rows, stages);
        config.variant = Variant::halo;
        config.tile_n = tile_n;
        CAPTURE(fmt::format("'{}', blocks of {}, {}", geometry, to_string(block), to_string(config)));
        const GroupShape shape = group_shape(gradient, config);
        const std::vector<BlockGroup> groups = make_block_groups(gradient, kH100, config);
        std::set<std::int32_t> seen;
        for (const BlockGroup& group : groups) {
          CHECK(group.bytes(shape) <= shape.place_bytes);
          CHECK(group.pairs.size() <= static_cast<std::size_t>(rows / 2));
          for (const BlockGroup::Piece& piece : group.pieces) {
            CHECK(seen.insert(piece.dw).second);
            // The block of dw that the piece is a part of.
            const std::int64_t element = std::int64_t{shape.piece.in} * piece.dw;
            const auto of_block = element / gradient.block_elements();
            const auto within = element % gradient.block_elements();
            const auto crow = gradient.layout.crow();
            const auto row = std::upper_bound(crow.begin(), crow.end(), of_block) - crow.begin() - 1;
            const std::int64_t col = gradient.layout.col()[static_cast<std::size_t>(of_block)];
            const std::int64_t tile = group.ins[static_cast<std::size_t>(piece.in)];
            CHECK(std::int64_t{shape.piece.out} * group.outs[static_cast<std::size_t>(piece.out)] ==
                  row * block.out + within / block.in);
            CHECK(shape.piece.in * (tile / shape.depths) ==
                  col / gradient.correlation->kernel_taps * block.in + within % block.in);
            CHECK(tile % shape.depths * shape.taps + piece.tap == col % gradient.correlation->kernel_taps);
          }
          std::size_t paired = 0;
          for (const auto& [one, other] : group.pairs) {
            paired += other == BlockGroup::kNone ? 1 : 2;
            if (other == BlockGroup::kNone) continue;
            const BlockGroup::Piece& first = group.pieces[static_cast<std::size_t>(one)];
            const BlockGroup::Piece& second = group.pieces[static_cast<std::size_t>(other)];
            CHECK(first.out == second.out);
            const auto where = [&](const BlockGroup::Piece& piece) {
              return std::pair(piece.in, shape.displacements[static_cast<std::size_t>(piece.tap)]);
            };
            CHECK(where(first) < where(second));
          }
          CHECK(paired == group.pieces.size());
        }
        CHECK(static_cast<std::int64_t>(seen.size()) == pieces_of(gradient, shape));
        CHECK(static_cast<std::int64_t>(groups.size()) <= group_bound(gradient, config));
      }
}

TEST_CASE("a layer of 1434 blocks is one wave of groups that share most of what they read") {
  const Layout layout = patterns::random(224, 64, 0.1, 7);
  const Sddmm gradient = gradient_of(layout, {64, 64});
  for (const std::int32_t stages : {4, 5}) {
    const std::vector<BlockGroup> groups = make_block_groups(gradient, kH100, grouped(12, stages));
    CHECK(groups.size() == 132);
    for (const BlockGroup& group : groups) CHECK(group.pieces.size() >= 9);
    // Runs of two blocks each read 3 / 2 tiles for a block; groups, fewer than one.
    CHECK(tiles_of(groups) < layout.blocks());
  }
}

TEST_CASE("both sides of a layout may be the longer one") {
  const Layout tall = patterns::random(224, 64, 0.1, 7);
  const std::int64_t of_tall =
      tiles_of(make_block_groups(gradient_of(tall, {64, 64}), kH100, grouped(12, 4)));
  const std::int64_t of_wide =
      tiles_of(make_block_groups(gradient_of(tall.transposed(), {64, 64}), kH100, grouped(12, 4)));
  CHECK(static_cast<double>(of_wide) / static_cast<double>(of_tall) > 0.95);
  CHECK(static_cast<double>(of_wide) / static_cast<double>(of_tall) < 1.05);
}

TEST_CASE("groups are planned for whole waves, or for slices of the batch that keep all CTAs busy") {
  CHECK(planned_groups(1434, 132, 256, 12) == 132);  // 11 pieces each
  CHECK(planned_groups(2000, 132, 256, 12) == 264);  // two waves
  CHECK(planned_groups(410, 132, 256, 12) == 44);    // three slices
  CHECK(planned_groups(410, 132, 16, 12) == 66);     // no more than two have eight chunks
  CHECK(planned_groups(410, 132, 15, 12) == 132);
  CHECK(planned_groups(5, 132, 15, 12) == 5);
  CHECK(planned_groups(0, 132, 15, 12) == 1);
}

TEST_CASE("groups of an empty layout sum dy alone, and the same input gives the same groups") {
  const Layout empty = Layout::from_mask(20, 2, std::vector<std::uint8_t>(40));
  CHECK(make_block_groups(gradient_of(empty, {64, 64}), kH100, grouped(12, 4)).empty());
  const std::vector<BlockGroup> sums =
      make_block_groups(gradient_of(empty, {64, 64}, true), kH100, grouped(12, 4));
  REQUIRE(sums.size() == 2);
  CHECK(sums[0].summed == 12);
  CHECK(sums[1].summed == 8);
  const BlockRuns schedule = make_block_runs(gradient_of(empty, {64, 64}), kH100, grouped(12, 4));
  CHECK(schedule.workers() == 1);
  CHECK(schedule.items() == 0);
  const Sddmm gradient = gradient_of(skewed(), {64, 64}, true);
  CHECK(make_block_runs(gradient, kH100, grouped(12, 4)) == make_block_runs(gradient, kH100, grouped(12, 4)));
}
