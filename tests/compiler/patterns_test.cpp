#include <sparsekiln/patterns.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sparsekiln/error.h>

using sparsekiln::Error;
using sparsekiln::ErrorKind;
using sparsekiln::Layout;
namespace patterns = sparsekiln::patterns;

namespace {

std::vector<std::int64_t> row_lengths(const Layout& layout) {
  std::vector<std::int64_t> lengths;
  for (std::int32_t row = 0; row < layout.rows(); ++row) lengths.push_back(std::ssize(layout.row(row)));
  return lengths;
}

std::vector<std::int64_t> column_lengths(const Layout& layout) {
  std::vector<std::int64_t> lengths;
  for (std::int32_t col = 0; col < layout.cols(); ++col)
    lengths.push_back(layout.ccol()[col + 1] - layout.ccol()[col]);
  return lengths;
}

std::int64_t spread(const std::vector<std::int64_t>& lengths) {
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  return *most - *least;
}

bool symmetric(const Layout& layout) {
  for (std::int32_t row = 0; row < layout.rows(); ++row)
    for (const std::int32_t col : layout.row(row))
      if (!layout.contains(col, row)) return false;
  return true;
}

bool has_diagonal(const Layout& layout) {
  for (std::int32_t i = 0; i < layout.rows(); ++i)
    if (!layout.contains(i, i)) return false;
  return true;
}

/// Blocks that two layouts of the same size have in common.
int common_blocks(const Layout& a, const Layout& b) {
  int blocks = 0;
  for (std::int32_t row = 0; row < a.rows(); ++row)
    for (const std::int32_t col : a.row(row)) blocks += b.contains(row, col);
  return blocks;
}

/// The layout in which exactly the blocks lie that `present` says.
Layout grid(std::int64_t rows, std::int64_t cols,
            const std::function<bool(std::int64_t, std::int64_t)>& present) {
  std::vector<std::uint8_t> mask;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) mask.push_back(present(i, j));
  return Layout::from_mask(rows, cols, mask);
}

std::string refusal(const std::function<Layout()>& make) {
  try {
    static_cast<void>(make());
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return "accepted";
}

bool has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  MESSAGE(text);
  return false;
}

constexpr std::pair<int, int> kGrids[] = {{1, 1}, {1, 9}, {9, 1}, {8, 8}, {7, 20}, {20, 7}, {33, 64}};
constexpr double kDensities[] = {0, 0.03, 0.1, 0.5, 0.77, 0.99, 1};

}  // namespace

TEST_CASE("random has exactly the rounded number of blocks") {
  for (const auto& [rows, cols] : kGrids)
    for (const double density : kDensities) {
      CAPTURE(rows);
      CAPTURE(cols);
      CAPTURE(density);
      CHECK(patterns::random(rows, cols, density, 5).blocks() == std::floor(density * rows * cols + 0.5));
    }
}

TEST_CASE("random reaches every cell about equally often, drawn or left out") {
  for (const double density : {0.25, 0.75}) {
    std::vector<int> hits(24);
    constexpr int kSeeds = 2000;
    for (int seed = 0; seed < kSeeds; ++seed) {
      const Layout layout = patterns::random(4, 6, density, seed);
      for (std::int32_t row = 0; row < 4; ++row)
        for (const std::int32_t col : layout.row(row)) ++hits[row * 6 + col];
    }
    // Five standard deviations of a binomial; the seeds are fixed, so this passes always or never.
    const double slack = 5 * std::sqrt(kSeeds * density * (1 - density));
    for (const int count : hits) CHECK(std::abs(count - density * kSeeds) < slack);
  }
}

TEST_CASE("random stays cheap on a huge, nearly empty grid") {
  const Layout layout = patterns::random(1 << 20, 1 << 20, 1e-9, 1);
  CHECK(layout.blocks() == 1100);
}

TEST_CASE("balanced random has the rounded number of blocks, and rows and columns equal within one") {
  for (const auto& [rows, cols] : kGrids)
    for (const double density : kDensities) {
      CAPTURE(rows);
      CAPTURE(cols);
      CAPTURE(density);
      const Layout layout = patterns::balanced_random(rows, cols, density, 5);
      CHECK(layout.blocks() == std::floor(density * rows * cols + 0.5));
      CHECK(spread(row_lengths(layout)) <= 1);
      CHECK(spread(column_lengths(layout)) <= 1);
    }
}

TEST_CASE("balanced random with a diagonal has all of it, and rows and columns equal within one") {
  for (const int size : {1, 2, 8, 33})
    for (const double density : {1.0 / size, 0.5, 0.77, 0.99, 1.0}) {
      if (density * size < 1) continue;
      CAPTURE(size);
      CAPTURE(density);
      const Layout layout = patterns::balanced_random(size, size, density, 5, true);
      CHECK(layout.blocks() == std::floor(density * size * size + 0.5));
      CHECK(spread(row_lengths(layout)) <= 1);
      CHECK(spread(column_lengths(layout)) <= 1);
      CHECK(has_diagonal(layout));
    }
}

TEST_CASE("balanced random with a diagonal reaches every other cell about equally often") {
  std::vector<int> hits(25);
  constexpr int kSeeds = 2000;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Layout layout = patterns::balanced_random(5, 5, 0.4, seed, true);
    for (std::int32_t row = 0; row < 5; ++row)
      for (const std::int32_t col : layout.row(row)) ++hits[row * 5 + col];
  }
  const double slack = 5 * std::sqrt(kSeeds * 0.25 * 0.75);
  for (int row = 0; row < 5; ++row)
    for (int col = 0; col < 5; ++col)
      if (row != col) CHECK(std::abs(hits[row * 5 + col] - 0.25 * kSeeds) < slack);
}

TEST_CASE("balanced random reaches every cell about equally often") {
  std::vector<int> hits(24);
  constexpr int kSeeds = 2000;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Layout layout = patterns::balanced_random(4, 6, 0.25, seed);
    for (std::int32_t row = 0; row < 4; ++row)
      for (const std::int32_t col : layout.row(row)) ++hits[row * 6 + col];
  }
  const double slack = 5 * std::sqrt(kSeeds * 0.25 * 0.75);
  for (const int count : hits) CHECK(std::abs(count - 0.25 * kSeeds) < slack);
}

TEST_CASE("Watts-Strogatz keeps the number of blocks and shares it equally among the rows") {
  for (const auto& [rows, cols] : kGrids)
    for (const double density : kDensities)
      for (const double rewire : {0.0, 0.2, 1.0}) {
        CAPTURE(rows);
        CAPTURE(cols);
        CAPTURE(density);
        CAPTURE(rewire);
        const Layout layout = patterns::watts_strogatz(rows, cols, density, rewire, 3);
        CHECK(layout.blocks() == std::floor(density * rows * cols + 0.5));
        CHECK(spread(row_lengths(layout)) <= 1);
        CHECK(row_lengths(layout) == row_lengths(patterns::watts_strogatz(rows, cols, density, 0, 3)));
      }
}

TEST_CASE("Watts-Strogatz without rewiring is a ring lattice") {
  const Layout layout = patterns::watts_strogatz(12, 12, 5.0 / 12, 0, 1);
  CHECK(layout == grid(12, 12, [](std::int64_t i, std::int64_t j) {
          const std::int64_t distance = std::min((i - j + 12) % 12, (j - i + 12) % 12);
          return distance <= 2;
        }));
  CHECK(layout == patterns::watts_strogatz(12, 12, 5.0 / 12, 0, 2));
}

TEST_CASE("every row of a Watts-Strogatz lattice is one run around the scaled diagonal") {
  for (const auto& [rows, cols] : kGrids) {
    CAPTURE(rows);
    CAPTURE(cols);
    const Layout layout = patterns::watts_strogatz(rows, cols, 0.3, 0, 1);
    for (std::int32_t row = 0; row < rows; ++row) {
      const auto present = layout.row(row);
      if (present.empty() || std::ssize(present) == cols) continue;
      int begins = 0;
      for (const std::int32_t col : present) begins += !layout.contains(row, (col + cols - 1) % cols);
      CHECK(begins == 1);
      CHECK(layout.contains(row, (2 * row + 1) * cols / (2 * rows)));
    }
  }
}

TEST_CASE("Watts-Strogatz rewires about the asked share of the blocks") {
  const Layout lattice = patterns::watts_strogatz(200, 200, 0.1, 0, 1);
  for (const double rewire : {0.2, 1.0}) {
    const Layout layout = patterns::watts_strogatz(200, 200, 0.1, rewire, 1);
    const int kept = common_blocks(layout, lattice);
    // Some of the 4000 blocks move back to a place that another one left.
    const double expected = 4000 * (1 - rewire) + 4000 * rewire * rewire * 0.05;
    CHECK(std::abs(kept - expected) < 150);
  }
}

TEST_CASE("Watts-Strogatz with a diagonal rewires everything else") {
  CHECK_FALSE(has_diagonal(patterns::watts_strogatz(64, 64, 0.1, 1, 3)));
  const Layout layout = patterns::watts_strogatz(64, 64, 0.1, 1, 3, true);
  CHECK(has_diagonal(layout));
  CHECK(layout.blocks() == 410);
  CHECK(spread(row_lengths(layout)) <= 1);
  // About one in ten of the 346 other blocks falls on a place of the lattice.
  CHECK(common_blocks(layout, patterns::watts_strogatz(64, 64, 0.1, 0, 3)) < 64 + 70);
  CHECK(patterns::watts_strogatz(8, 8, 0.125, 1, 3, true) == patterns::banded(8, 8, 0));
}

TEST_CASE("balanced Watts-Strogatz has equal rows and equal columns, within one, in every grid") {
  for (const auto& [rows, cols] : kGrids)
    for (const double density : kDensities)
      for (const double rewire : {0.0, 0.2, 1.0}) {
        CAPTURE(rows);
        CAPTURE(cols);
        CAPTURE(density);
        CAPTURE(rewire);
        const Layout layout = patterns::balanced_watts_strogatz(rows, cols, density, rewire, 3);
        CHECK(row_lengths(layout) == row_lengths(patterns::watts_strogatz(rows, cols, density, 0, 3)));
        CHECK(spread(column_lengths(layout)) <= 1);
      }
  CHECK(spread(column_lengths(patterns::watts_strogatz(200, 200, 0.1, 0.2, 3))) > 1);
}

TEST_CASE("balanced Watts-Strogatz without rewiring is the lattice where the grid is square") {
  for (const int size : {1, 2, 8, 13, 64})
    for (const double density : kDensities) {
      CAPTURE(size);
      CAPTURE(density);
      CHECK(patterns::balanced_watts_strogatz(size, size, density, 0, 1) ==
            patterns::watts_strogatz(size, size, density, 0, 1));
    }
}

TEST_CASE("balanced Watts-Strogatz moves few blocks of a lattice that is not square, and not far") {
  constexpr std::int32_t kRows = 100;
  constexpr std::int32_t kCols = 37;
  const Layout lattice = patterns::watts_strogatz(kRows, kCols, 0.3, 0, 1);
  REQUIRE(spread(column_lengths(lattice)) > 1);
  const Layout layout = patterns::balanced_watts_strogatz(kRows, kCols, 0.3, 0, 1);
  CHECK(layout != lattice);
  CHECK(layout.blocks() - common_blocks(layout, lattice) <= kCols);
  for (std::int32_t row = 0; row < kRows; ++row)
    for (const std::int32_t col : layout.row(row)) {
      const double distance = std::abs(col - (row + 0.5) * kCols / kRows);
      CHECK(std::min(distance, kCols - distance) < 0.15 * kCols + 5);
    }
}

TEST_CASE("balanced Watts-Strogatz rewires about the asked share of the blocks") {
  const Layout lattice = patterns::watts_strogatz(200, 200, 0.1, 0, 1);
  for (const double rewire : {0.01, 0.2, 1.0}) {
    const Layout layout = patterns::balanced_watts_strogatz(200, 200, 0.1, rewire, 1);
    // Some of the 4000 blocks come to a place that another one left.
    const double expected = 4000 * (1 - rewire) + 4000 * rewire * rewire * 0.1;
    CHECK(std::abs(common_blocks(layout, lattice) - expected) < 150 * std::sqrt(rewire));
  }
}

TEST_CASE("balanced Watts-Strogatz with a diagonal keeps it") {
  for (const double rewire : {0.0, 0.2, 1.0}) {
    const Layout layout = patterns::balanced_watts_strogatz(64, 64, 0.1, rewire, 3, true);
    CHECK(has_diagonal(layout));
    CHECK(spread(row_lengths(layout)) <= 1);
    CHECK(spread(column_lengths(layout)) <= 1);
  }
  CHECK_FALSE(has_diagonal(patterns::balanced_watts_strogatz(64, 64, 0.1, 1, 3)));
}

TEST_CASE("Barabasi-Albert is symmetric, with edges for each new node") {
  for (const auto& [size, edges] : {std::pair{160, 5}, {10, 1}, {10, 9}, {2, 1}, {1, 0}, {7, 0}}) {
    CAPTURE(size);
    CAPTURE(edges);
    const Layout layout = patterns::barabasi_albert(size, edges, false, 7);
    CHECK(layout.blocks() == 2 * edges * (size - edges));
    CHECK(symmetric(layout));
    for (std::int32_t node = 0; node < size; ++node) {
      CHECK_FALSE(layout.contains(node, node));
      if (node >= edges) CHECK(std::ssize(layout.row(node)) >= edges);
    }
    const Layout with_diagonal = patterns::barabasi_albert(size, edges, true, 7);
    CHECK(with_diagonal.blocks() == layout.blocks() + size);
    for (std::int32_t node = 0; node < size; ++node) CHECK(with_diagonal.contains(node, node));
  }
}

TEST_CASE("Barabasi-Albert makes hubs") {
  CHECK(patterns::barabasi_albert(160, 5, false, 7).statistics().longest_row > 25);
}

TEST_CASE("extra edges of Barabasi-Albert come on top of the others, each as two blocks") {
  const Layout base = patterns::barabasi_albert(160, 5, false, 7);
  for (const int extra : {1, 25, 300}) {
    CAPTURE(extra);
    const Layout layout = patterns::barabasi_albert(160, 5, false, 7, extra);
    CHECK(layout.blocks() == base.blocks() + 2 * extra);
    CHECK(common_blocks(layout, base) == base.blocks());
    CHECK(symmetric(layout));
    for (std::int32_t node = 0; node < 160; ++node) CHECK_FALSE(layout.contains(node, node));
    CHECK(patterns::barabasi_albert(160, 5, true, 7, extra).blocks() == layout.blocks() + 160);
  }
}

TEST_CASE("extra edges of Barabasi-Albert go to the nodes with the fewest") {
  for (const auto& [size, edges] : {std::pair{160, 5}, {64, 8}, {64, 4}}) {
    CAPTURE(size);
    CAPTURE(edges);
    bool some_had_fewer = false;
    for (int seed = 0; seed < 8; ++seed) {
      const Layout base = patterns::barabasi_albert(size, edges, false, seed);
      const std::vector<std::int64_t> before = row_lengths(base);
      some_had_fewer |= *std::min_element(before.begin(), before.end()) < edges;
      const Layout layout = patterns::barabasi_albert(size, edges, false, seed, edges * edges);
      CHECK(layout.blocks() == 2 * edges * size);
      const std::vector<std::int64_t> after = row_lengths(layout);
      const std::int64_t least = *std::min_element(after.begin(), after.end());
      CHECK(least >= edges);
      // Each new block joins two nodes, one of which had no more edges than any has now.
      for (std::int32_t node = 0; node < size; ++node)
        for (const std::int32_t other : layout.row(node))
          if (!base.contains(node, other)) CHECK(std::min(before[node], before[other]) <= least);
    }
    CHECK(some_had_fewer);
  }
}

TEST_CASE("extra edges of Barabasi-Albert can join all nodes") {
  const Layout layout = patterns::barabasi_albert(9, 2, true, 7, 9 * 8 / 2 - 2 * 7);
  CHECK(layout.blocks() == 81);
  CHECK(patterns::barabasi_albert(4, 0, false, 7, 6).blocks() == 12);
}

TEST_CASE("extra edges of Barabasi-Albert reach every partner about equally often") {
  std::vector<int> hits(6);
  constexpr int kSeeds = 2000;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Layout layout = patterns::barabasi_albert(6, 0, false, seed, 1);
    for (std::int32_t node = 0; node < 6; ++node) hits[node] += !layout.row(node).empty();
  }
  const double slack = 5 * std::sqrt(kSeeds * 1.0 / 3 * 2 / 3);
  for (const int count : hits) CHECK(std::abs(count - kSeeds / 3.0) < slack);
}

TEST_CASE("block diagonal covers every row and column once, in groups equal within one") {
  CHECK(patterns::block_diagonal(4, 6, 2) ==
        grid(4, 6, [](std::int64_t i, std::int64_t j) { return i / 2 == j / 3; }));
  for (const auto& [rows, cols] : kGrids)
    for (const int groups : {1, 2, 3, 7}) {
      if (groups > std::min(rows, cols)) continue;
      CAPTURE(rows);
      CAPTURE(cols);
      CAPTURE(groups);
      const Layout layout = patterns::block_diagonal(rows, cols, groups);
      CHECK(spread(row_lengths(layout)) <= 1);
      CHECK(spread(column_lengths(layout)) <= 1);
      CHECK(layout.statistics().empty_rows == 0);
      CHECK(layout.statistics().empty_cols == 0);
    }
}

TEST_CASE("banded holds what lies within the half width of the diagonal") {
  for (const int half : {0, 1, 3, 100})
    CHECK(patterns::banded(9, 9, half) ==
          grid(9, 9, [&](std::int64_t i, std::int64_t j) { return std::abs(i - j) <= half; }));
}

TEST_CASE("a band of a rectangular grid follows the scaled diagonal") {
  CHECK(patterns::banded(2, 8, 0) == grid(2, 8, [](std::int64_t i, std::int64_t j) { return j / 4 == i; }));
  CHECK(patterns::banded(8, 2, 0) == grid(8, 2, [](std::int64_t i, std::int64_t j) { return i / 4 == j; }));
  for (const auto& [rows, cols] : kGrids) {
    const Layout layout = patterns::banded(rows, cols, 0);
    CHECK(layout.statistics().empty_rows == 0);
    CHECK(layout.statistics().empty_cols == 0);
  }
}

TEST_CASE("butterfly joins what differs in at most one bit") {
  for (const int size : {1, 2, 8, 64})
    CHECK(patterns::butterfly(size) == grid(size, size, [](std::int64_t i, std::int64_t j) {
            const std::int64_t bits = i ^ j;
            return (bits & (bits - 1)) == 0;
          }));
}

TEST_CASE("causal is the lower triangle") {
  for (const int size : {1, 2, 13})
    CHECK(patterns::causal(size) == grid(size, size, [](std::int64_t i, std::int64_t j) { return j <= i; }));
}

TEST_CASE("strided sees the previous blocks and the multiples of its stride") {
  for (const int stride : {1, 3, 4, 20})
    CHECK(patterns::strided(13, stride) == grid(13, 13, [&](std::int64_t i, std::int64_t j) {
            return j <= i && (i - j <= stride || (i - j) % stride == 0);
          }));
}

TEST_CASE("Longformer sees its window and the global blocks") {
  for (const auto& [window, global] : {std::pair{0, 0}, {2, 1}, {20, 3}, {1, 13}})
    CHECK(patterns::longformer(13, window, global) ==
          grid(13, 13, [&, w = window, g = global](std::int64_t i, std::int64_t j) {
            return std::abs(i - j) <= w || i < g || j < g;
          }));
}

TEST_CASE("BigBird adds its random blocks to each row of Longformer's pattern") {
  for (const int random : {0, 2, 9, 13}) {
    CAPTURE(random);
    const Layout base = patterns::longformer(13, 1, 1);
    const Layout layout = patterns::bigbird(13, 1, 1, random, 5);
    for (std::int32_t row = 0; row < 13; ++row) {
      CHECK(std::ssize(layout.row(row)) == std::min<std::int64_t>(13, std::ssize(base.row(row)) + random));
      for (const std::int32_t col : base.row(row)) CHECK(layout.contains(row, col));
    }
  }
}

TEST_CASE("the same seed gives the same layout, another seed another one") {
  const std::function<Layout(std::uint64_t)> makers[] = {
      [](std::uint64_t seed) { return patterns::random(30, 40, 0.2, seed); },
      [](std::uint64_t seed) { return patterns::balanced_random(30, 40, 0.2, seed); },
      [](std::uint64_t seed) { return patterns::watts_strogatz(30, 40, 0.2, 0.3, seed); },
      [](std::uint64_t seed) { return patterns::balanced_random(40, 40, 0.2, seed, true); },
      [](std::uint64_t seed) { return patterns::balanced_watts_strogatz(30, 40, 0.2, 0.3, seed); },
      [](std::uint64_t seed) { return patterns::watts_strogatz(40, 40, 0.2, 0.3, seed, true); },
      [](std::uint64_t seed) { return patterns::barabasi_albert(40, 3, true, seed); },
      [](std::uint64_t seed) { return patterns::barabasi_albert(40, 0, true, seed, 30); },
      [](std::uint64_t seed) { return patterns::bigbird(40, 1, 1, 2, seed); },
  };
  for (const auto& make : makers) {
    CHECK(make(9) == make(9));
    CHECK(make(9) != make(10));
    CHECK(make(0) != make(~std::uint64_t{0}));
  }
}

TEST_CASE("layouts of given seeds are the same on every machine and compiler") {
  const std::pair<Layout, std::string> golden[] = {
      {patterns::random(30, 40, 0.2, 1), "fd43f5d0523838187e556a2b75f41e7c"},
      {patterns::random(30, 40, 0.8, 1), "2a287fc42cd1c92ece12c944fe786123"},
      {patterns::balanced_random(30, 40, 0.2, 1), "1358a6f08a0894f39c9a893337538975"},
      {patterns::watts_strogatz(384, 384, 0.1, 0.2, 3), "154c8620b03e18f1e386117b01d2a4af"},
      {patterns::watts_strogatz(20, 30, 0.7, 0.2, 3), "bdbc8d467ca7bc98fced215e2a408d58"},
      {patterns::barabasi_albert(160, 5, true, 1), "c87a532e24dacb0cb55fde41f8eeed27"},
      {patterns::balanced_random(40, 40, 0.2, 1, true), "062a7f2c1166063fd24b5b26791ef0dc"},
      {patterns::watts_strogatz(384, 384, 0.1, 0.2, 3, true), "1acb146341755c0621430672a55ce20f"},
      {patterns::balanced_watts_strogatz(384, 384, 0.1, 0.2, 3), "334bb0f72e7a7eb7f14040997ad0d9c5"},
      {patterns::balanced_watts_strogatz(40, 40, 0.2, 0.2, 3, true), "d5a8ac26bfbdb06cd8f4d8d5788ad70c"},
      {patterns::balanced_watts_strogatz(50, 30, 0.3, 0.2, 3), "3c87a450c7b08bcf05671c495c86ec0e"},
      {patterns::barabasi_albert(160, 5, true, 1, 25), "85d50f94feadd0b56f801f5051f2aeb5"},
      {patterns::barabasi_albert(20, 3, true, 1, 120), "96d5e7354d966cdd6b4e889cca733476"},
      {patterns::bigbird(64, 1, 2, 3, 1), "047580c22cceea6f6a541696465de6b7"},
  };
  for (const auto& [layout, digest] : golden) CHECK(layout.digest().hex() == digest);
}

TEST_CASE("arguments out of range are refused by name") {
  CHECK(has(refusal([] { return patterns::random(0, 4, 0.5, 1); }), "rows is 0; expected 1 to 16777216"));
  CHECK(has(refusal([] { return patterns::random(4, -1, 0.5, 1); }), "cols is -1"));
  CHECK(has(refusal([] { return patterns::random(INT64_MAX, INT64_MAX, 0.5, 1); }), "rows is"));
  CHECK(has(refusal([] { return patterns::random(4, 4, 1.5, 1); }), "density is 1.5; expected 0 to 1"));
  CHECK(has(refusal([] { return patterns::random(4, 4, std::nan(""), 1); }), "density is nan"));
  CHECK(has(refusal([] { return patterns::balanced_random(4, 4, -0.1, 1); }), "density is -0.1"));
  CHECK(
      has(refusal([] { return patterns::watts_strogatz(4, 4, 0.5, 2, 1); }), "rewire is 2; expected 0 to 1"));
  CHECK(has(refusal([] { return patterns::barabasi_albert(4, 4, true, 1); }), "edges is 4; expected 0 to 3"));
  CHECK(has(refusal([] { return patterns::barabasi_albert(4, 1, true, 1, 4); }),
            "extra_edges is 4; expected 0 to 3"));
  CHECK(has(refusal([] { return patterns::barabasi_albert(4, 1, true, 1, -1); }), "extra_edges is -1"));
  CHECK(has(refusal([] { return patterns::balanced_watts_strogatz(4, 4, 0.5, -1, 1); }), "rewire is -1"));
  CHECK(has(refusal([] { return patterns::watts_strogatz(4, 5, 0.5, 0, 1, true); }),
            "diagonal of 4 × 5 blocks; expected as many rows as columns"));
  CHECK(has(refusal([] { return patterns::balanced_watts_strogatz(8, 8, 0.1, 0, 1, true); }),
            "6 blocks, and the diagonal alone has 8; expected a density of 1/8"));
  CHECK(has(refusal([] { return patterns::balanced_random(4, 5, 0.5, 1, true); }), "diagonal of 4 × 5"));
  CHECK(has(refusal([] { return patterns::block_diagonal(4, 9, 5); }), "groups is 5; expected 1 to 4"));
  CHECK(has(refusal([] { return patterns::banded(4, 9, -1); }), "half_width is -1"));
  CHECK(has(refusal([] { return patterns::butterfly(12); }), "size is 12; expected a power of two"));
  CHECK(has(refusal([] { return patterns::strided(4, 0); }), "stride is 0; expected 1"));
  CHECK(has(refusal([] { return patterns::longformer(4, -1, 0); }), "window is -1"));
  CHECK(has(refusal([] { return patterns::longformer(4, 1, 5); }), "global is 5; expected 0 to 4"));
  CHECK(has(refusal([] { return patterns::bigbird(4, 1, 1, -1, 1); }), "random is -1; expected 0 to 4"));
}

TEST_CASE("a pattern of too many blocks is refused before memory is taken") {
  CHECK(has(refusal([] { return patterns::random(1 << 24, 1 << 24, 0.5, 1); }),
            "too many; at most 1073741824"));
  CHECK(has(refusal([] { return patterns::causal(1 << 24); }), "too many"));
  CHECK(has(refusal([] { return patterns::barabasi_albert(1 << 24, 1 << 10, true, 1); }), "too many"));
  CHECK(has(refusal([] { return patterns::barabasi_albert(1 << 24, 1, true, 1, 1 << 29); }), "too many"));
  CHECK(has(refusal([] { return patterns::longformer(1 << 20, 1 << 12, 0); }), "too many"));
}
