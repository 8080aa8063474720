#include <sparsekiln/layout.h>
#include <sparsekiln/patterns.h>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <sparsekiln/error.h>

using sparsekiln::Error;
using sparsekiln::ErrorKind;
using sparsekiln::Layout;
using Indices = std::vector<std::int32_t>;

namespace {

//  1 0 1 0
//  0 0 0 0
//  0 1 1 1
Layout sample() { return Layout::from_csr(3, 4, Indices{0, 2, 2, 5}, Indices{0, 2, 1, 2, 3}); }

std::string refusal(std::int64_t rows, std::int64_t cols, Indices crow, Indices col) {
  try {
    static_cast<void>(Layout::from_csr(rows, cols, std::move(crow), std::move(col)));
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

template <typename Span>
Indices copy(Span span) {
  return Indices(span.begin(), span.end());
}

}  // namespace

TEST_CASE("transposing exchanges rows and columns, and says where each block was") {
  const Layout layout = sparsekiln::patterns::random(6, 9, 0.4, 1);
  const Layout transposed = layout.transposed();
  CHECK(transposed.rows() == layout.cols());
  CHECK(transposed.cols() == layout.rows());
  REQUIRE(transposed.blocks() == layout.blocks());
  for (std::int32_t row = 0; row < layout.rows(); ++row)
    for (std::int32_t col = 0; col < layout.cols(); ++col)
      CHECK(transposed.contains(col, row) == layout.contains(row, col));
  for (std::int64_t block = 0; block < layout.blocks(); ++block)
    CHECK(transposed.col()[block] == layout.row_of()[block]);
  CHECK(transposed.transposed() == layout);
}

TEST_CASE("parts along the diagonal keep their blocks, in their order") {
  const std::vector<Layout> parts = {sparsekiln::patterns::random(3, 5, 0.4, 1),
                                     Layout::from_mask(2, 1, std::array<std::uint8_t, 2>{0, 0}),
                                     sparsekiln::patterns::random(4, 2, 0.7, 2)};
  const Layout whole = Layout::diagonal(parts);
  CHECK(whole.rows() == 9);
  CHECK(whole.cols() == 8);
  REQUIRE(whole.blocks() == parts[0].blocks() + parts[2].blocks());
  for (std::int32_t row = 0; row < 9; ++row)
    for (std::int32_t col = 0; col < 8; ++col) {
      const bool first = row < 3 && col < 5 && parts[0].contains(row, col);
      const bool last = row >= 5 && col >= 6 && parts[2].contains(row - 5, col - 6);
      CHECK(whole.contains(row, col) == (first || last));
    }
  CHECK(Layout::diagonal(std::span(parts).first(1)) == parts[0]);
  CHECK_THROWS_AS(static_cast<void>(Layout::diagonal({})), Error);
  const std::vector<Layout> tall(
      2, Layout::from_csr(Layout::kMaxExtent, 1, std::vector<std::int32_t>(Layout::kMaxExtent + 1),
                          std::vector<std::int32_t>{}));
  CHECK_THROWS_AS(static_cast<void>(Layout::diagonal(tall)), Error);
}

TEST_CASE("the row view is what from_csr was given") {
  const Layout layout = sample();
  CHECK(layout.rows() == 3);
  CHECK(layout.cols() == 4);
  CHECK(layout.blocks() == 5);
  CHECK(copy(layout.crow()) == Indices{0, 2, 2, 5});
  CHECK(copy(layout.col()) == Indices{0, 2, 1, 2, 3});
  CHECK(copy(layout.row(0)) == Indices{0, 2});
  CHECK(layout.row(1).empty());
  CHECK(copy(layout.row(2)) == Indices{1, 2, 3});
}

TEST_CASE("the column view numbers the same blocks by column") {
  const Layout layout = sample();
  CHECK(copy(layout.ccol()) == Indices{0, 1, 2, 4, 5});
  CHECK(copy(layout.row_of()) == Indices{0, 2, 0, 2, 2});
  CHECK(copy(layout.block_of()) == Indices{0, 2, 1, 3, 4});
}

TEST_CASE("threads that ask for the column view at once see the same one") {
  const Layout layout = sample();
  std::vector<const std::int32_t*> seen(4);
  std::vector<std::thread> threads;
  for (auto& place : seen) threads.emplace_back([&] { place = layout.block_of().data(); });
  for (auto& thread : threads) thread.join();
  for (const auto* place : seen) CHECK(place == layout.block_of().data());
}

TEST_CASE("copies and spans of the same indices are equal layouts") {
  const Indices crow{0, 2, 2, 5};
  const Indices col{0, 2, 1, 2, 3};
  const Layout copied = Layout::from_csr(3, 4, std::span(crow), std::span(col));
  CHECK(copied == sample());
  CHECK(copied.col().data() != col.data());
  const Layout handle = copied;
  CHECK(handle.col().data() == copied.col().data());
}

TEST_CASE("a mask gives the layout of its non-zero bytes") {
  const std::vector<std::uint8_t> mask{1, 0, 255, 0, 0, 0, 0, 0, 0, 2, 1, 1};
  CHECK(Layout::from_mask(3, 4, mask) == sample());
  CHECK_THROWS_AS(static_cast<void>(Layout::from_mask(3, 5, mask)), Error);
  CHECK_THROWS_AS(static_cast<void>(Layout::from_mask(-3, -4, mask)), Error);
}

TEST_CASE("contains tells present from absent, and is false outside the grid") {
  const Layout layout = sample();
  CHECK(layout.contains(0, 2));
  CHECK_FALSE(layout.contains(0, 1));
  CHECK_FALSE(layout.contains(1, 0));
  CHECK_FALSE(layout.contains(-1, 0));
  CHECK_FALSE(layout.contains(3, 0));
  CHECK_FALSE(layout.contains(0, 4));
  CHECK_FALSE(layout.contains(0, -1));
}

TEST_CASE("statistics count rows, columns and blocks") {
  const auto statistics = sample().statistics();
  CHECK(statistics.blocks == 5);
  CHECK(statistics.density == doctest::Approx(5.0 / 12));
  CHECK(statistics.empty_rows == 1);
  CHECK(statistics.empty_cols == 0);
  CHECK(statistics.longest_row == 3);
  CHECK(statistics.longest_col == 2);
  CHECK(statistics.row_deviation == doctest::Approx(1.247219129));
}

TEST_CASE("a grid without cells is a layout") {
  for (const Layout& layout : {Layout(), Layout::from_csr(0, 7, Indices{0}, Indices{}),
                               Layout::from_csr(2, 0, Indices{0, 0, 0}, Indices{})}) {
    CHECK(layout.blocks() == 0);
    CHECK(layout.statistics().density == 0);
    CHECK(std::ssize(layout.crow()) == layout.rows() + 1);
    CHECK(std::ssize(layout.ccol()) == layout.cols() + 1);
  }
  CHECK(Layout::from_csr(0, 7, Indices{0}, Indices{}).statistics().empty_cols == 7);
}

TEST_CASE("the digest tells grids apart, down to one block and the extents") {
  const Layout layout = sample();
  CHECK(layout != Layout::from_csr(3, 4, Indices{0, 2, 2, 5}, Indices{0, 3, 1, 2, 3}));
  CHECK(layout != Layout::from_csr(3, 5, Indices{0, 2, 2, 5}, Indices{0, 2, 1, 2, 3}));
  CHECK(layout != Layout::from_csr(3, 4, Indices{0, 2, 3, 5}, Indices{0, 2, 1, 2, 3}));
  CHECK(Layout::from_csr(0, 7, Indices{0}, Indices{}) != Layout::from_csr(7, 0, Indices(8), Indices{}));
  CHECK(Layout() == Layout());
}

TEST_CASE("the digest is that of the little-endian words rows, cols, crow, col") {
  std::string canonical;
  for (const int word : {3, 4, 0, 2, 2, 5, 0, 2, 1, 2, 3}) canonical += {static_cast<char>(word), 0, 0, 0};
  CHECK(sample().digest() == sparsekiln::Digest::of(canonical));
}

TEST_CASE("index arrays that make no sense are refused, naming the row") {
  CHECK(has(refusal(2, 3, {0, 2, 2}, {2, 1}), "row 0: column 1 follows 2; sort"));
  CHECK(has(refusal(2, 3, {0, 0, 2}, {1, 1}), "row 1: column 1 appears twice"));
  CHECK(has(refusal(2, 3, {0, 1, 2}, {0, 3}), "row 1: column 3 is out of range; expected 0 to 2"));
  CHECK(has(refusal(2, 3, {0, 1, 2}, {-1, 0}), "row 0: column -1 is out of range"));
  CHECK(has(refusal(2, 3, {0, 2, 1}, {0, 1}), "row 1: crow descends from 2 to 1"));
  CHECK(has(refusal(2, 3, {0, 3, 3}, {0, 1}), "row 0: crow is 3, but col has 2 entries"));
  CHECK(has(refusal(2, 3, {0, 1, 1}, {0, 1}), "crow ends at 1, but col has 2 entries"));
  CHECK(has(refusal(2, 3, {1, 1, 2}, {0, 1}), "crow starts at 1"));
  CHECK(has(refusal(2, 3, {0, 1}, {0}), "crow has 2 entries; 2 rows need 3"));
}

TEST_CASE("extents out of range are refused before anything is read") {
  CHECK(has(refusal(-1, 3, {}, {}), "-1 rows is out of range; expected 0 to 16777216"));
  CHECK(has(refusal(3, Layout::kMaxExtent + 1, {}, {}), "16777217 columns is out of range"));
  CHECK(has(refusal(INT64_MAX, 1, {0}, {}), "rows is out of range"));
}
