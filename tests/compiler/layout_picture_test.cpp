#include "compiler/layout_picture.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

using sparsekiln::coverage;
using sparsekiln::draw;
using sparsekiln::Error;
using sparsekiln::Layout;
namespace patterns = sparsekiln::patterns;

namespace {

Layout checkerboard(std::int64_t rows, std::int64_t cols) {
  std::vector<std::uint8_t> mask;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) mask.push_back((i + j) % 2 == 0);
  return Layout::from_mask(rows, cols, mask);
}

}  // namespace

TEST_CASE("at its own size a picture shows the blocks themselves") {
  const Layout layout = patterns::random(7, 11, 0.4, 1);
  const auto picture = coverage(layout, 11, 7);
  for (std::int32_t y = 0; y < 7; ++y)
    for (std::int32_t x = 0; x < 11; ++x) CHECK(picture.at(x, y) == (layout.contains(y, x) ? 1.0F : 0.0F));
}

TEST_CASE("a smaller picture gives each cell the share of its blocks that is present") {
  const auto picture = coverage(patterns::causal(4), 2, 2);
  CHECK(picture.at(0, 0) == 0.75F);
  CHECK(picture.at(1, 0) == 0.0F);
  CHECK(picture.at(0, 1) == 1.0F);
  CHECK(picture.at(1, 1) == 0.75F);
}

TEST_CASE("every block counts in exactly one cell, whatever the sizes") {
  const Layout layout = patterns::random(53, 97, 0.3, 2);
  for (const auto& [width, height] : {std::pair{10, 7}, {97, 1}, {1, 53}, {96, 52}}) {
    const auto picture = coverage(layout, width, height);
    double blocks = 0;
    for (std::int32_t y = 0; y < height; ++y)
      for (std::int32_t x = 0; x < width; ++x) {
        const std::int64_t rows = (y + 1) * 53 / height - y * 53 / height;
        const std::int64_t cols = (x + 1) * 97 / width - x * 97 / width;
        blocks += picture.at(x, y) * static_cast<double>(rows * cols);
      }
    CHECK(blocks == doctest::Approx(static_cast<double>(layout.blocks())));
  }
}

TEST_CASE("a larger picture repeats rows and columns") {
  const Layout layout = patterns::random(3, 5, 0.5, 3);
  const auto picture = coverage(layout, 17, 8);
  for (std::int32_t y = 0; y < 8; ++y)
    for (std::int32_t x = 0; x < 17; ++x)
      CHECK(picture.at(x, y) == (layout.contains(y * 3 / 8, x * 5 / 17) ? 1.0F : 0.0F));
}

TEST_CASE("a grid that fits is drawn block by block") {
  CHECK(draw(checkerboard(3, 4), 80, 24) == "▀▄▀▄\n▀ ▀ \n");
  CHECK(draw(patterns::block_diagonal(2, 2, 1), 80, 24) == "██\n");
}

TEST_CASE("a grid that does not fit is drawn in shades at its aspect") {
  CHECK(draw(checkerboard(64, 64), 8, 24) == "▓▓▓▓▓▓▓▓\n▓▓▓▓▓▓▓▓\n▓▓▓▓▓▓▓▓\n▓▓▓▓▓▓▓▓\n");
  CHECK(draw(patterns::block_diagonal(64, 64, 2), 8, 2) == "██  \n  ██\n");
}

TEST_CASE("a single block of a huge grid is seen") {
  std::vector<std::int32_t> crow(1001, 1);
  crow[0] = 0;
  const std::string text = draw(Layout::from_csr(1000, 1000, crow, std::vector<std::int32_t>{999}), 10, 5);
  CHECK(text == "         ░\n          \n          \n          \n          \n");
}

TEST_CASE("extreme aspects still fit") {
  const std::string flat = draw(patterns::banded(1, 5000, 0), 20, 5);
  CHECK(std::count(flat.begin(), flat.end(), '\n') == 1);
  const std::string tall = draw(patterns::banded(5000, 1, 0), 20, 5);
  CHECK(std::count(tall.begin(), tall.end(), '\n') == 5);
}

TEST_CASE("a grid without cells is an empty drawing and a blank picture") {
  CHECK(draw(Layout(), 80, 24).empty());
  CHECK(coverage(Layout(), 3, 2).cells == std::vector<float>(6, 0.0F));
}

TEST_CASE("a picture without cells is refused") {
  CHECK_THROWS_AS(static_cast<void>(coverage(Layout(), 0, 1)), Error);
  CHECK_THROWS_AS(static_cast<void>(coverage(Layout(), 1, -1)), Error);
  CHECK_THROWS_AS(static_cast<void>(coverage(Layout(), INT32_MAX, INT32_MAX)), Error);
  CHECK_THROWS_AS(static_cast<void>(draw(Layout(), 0, 1)), Error);
}
