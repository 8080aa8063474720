#include <sparsekiln/mixing.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

using sparsekiln::Error;
using sparsekiln::ErrorKind;
using sparsekiln::Layout;
using sparsekiln::patterns::Mixing;
using sparsekiln::patterns::mixing;
namespace patterns = sparsekiln::patterns;

namespace {

/// The figures after the layers, with the blocks that each input block reaches followed one by one.
Mixing followed(const std::vector<Layout>& layers) {
  std::vector<std::int64_t> counts;
  for (std::int32_t start = 0; start < layers.front().cols(); ++start) {
    std::vector<bool> reached(static_cast<std::size_t>(layers.front().cols()));
    reached[start] = true;
    for (const Layout& layer : layers) {
      std::vector<bool> next(static_cast<std::size_t>(layer.rows()));
      for (std::int32_t row = 0; row < layer.rows(); ++row)
        for (const std::int32_t col : layer.row(row))
          if (reached[col]) next[row] = true;
      reached = next;
    }
    counts.push_back(std::count(reached.begin(), reached.end(), true));
  }
  std::sort(counts.begin(), counts.end());
  double sum = 0;
  for (const std::int64_t count : counts) sum += static_cast<double>(count);
  const std::size_t half = counts.size() / 2;
  const double median = counts.size() % 2 == 1 ? static_cast<double>(counts[half])
                                               : static_cast<double>(counts[half - 1] + counts[half]) / 2;
  const double inputs = static_cast<double>(counts.size());
  return {counts.front(), median, sum / inputs, counts.back(), sum / (inputs * layers.back().rows())};
}

void check_equal(const Mixing& a, const Mixing& b) {
  CHECK(a.minimum == b.minimum);
  CHECK(a.median == b.median);
  CHECK(a.mean == doctest::Approx(b.mean));
  CHECK(a.maximum == b.maximum);
  CHECK(a.share == doctest::Approx(b.share));
}

std::string refusal(const std::vector<Layout>& layers) {
  try {
    static_cast<void>(mixing(layers));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a band reaches two more blocks with each layer, fewer at its ends") {
  const std::vector<Layout> layers(4, patterns::banded(7, 7, 1));
  const std::vector<Mixing> after = mixing(layers);
  REQUIRE(after.size() == 4);
  check_equal(after[0], {2, 3, 19.0 / 7, 3, 19.0 / 49});
  check_equal(after[1], {3, 4, 29.0 / 7, 5, 29.0 / 49});
  check_equal(after[2], {4, 5, 37.0 / 7, 7, 37.0 / 49});
  check_equal(after[3], {5, 6, 43.0 / 7, 7, 43.0 / 49});
}

TEST_CASE("an even number of input blocks has the median between the two in the middle") {
  const std::vector<std::uint8_t> mask{1, 1, 1, 1,  //
                                       0, 0, 1, 1,  //
                                       0, 0, 0, 1};
  const std::vector<Layout> layers{Layout::from_mask(3, 4, mask)};
  check_equal(mixing(layers).front(), {1, 1.5, 7.0 / 4, 3, 7.0 / 12});
}

TEST_CASE("a butterfly mixes everything after as many layers as its size has bits, and not before") {
  const std::vector<Layout> layers(6, patterns::butterfly(64));
  const std::vector<Mixing> after = mixing(layers);
  CHECK(after[0].maximum == 7);
  CHECK(after[4].maximum == 63);
  CHECK(after[4].share < 1);
  check_equal(after[5], {64, 64, 64, 64, 1});
  CHECK(after[5].share == 1);
}

TEST_CASE("layers of several sizes give what following each block gives") {
  // More input blocks than one pass of 512 takes, and a last pass that is not full.
  const std::vector<Layout> layers{patterns::random(70, 1100, 0.01, 1), patterns::random(90, 70, 0.03, 2),
                                   patterns::random(33, 90, 0.05, 3)};
  const std::vector<Mixing> after = mixing(layers);
  REQUIRE(after.size() == 3);
  for (std::size_t k = 0; k < layers.size(); ++k) {
    CAPTURE(k);
    check_equal(after[k], followed({layers.begin(), layers.begin() + k + 1}));
  }
}

TEST_CASE("layers are applied in their order") {
  const std::vector<std::uint8_t> first_row{1, 1, 0, 0};
  const std::vector<std::uint8_t> first_column{1, 0, 1, 0};
  const Layout gathers = Layout::from_mask(2, 2, first_row);
  const Layout spreads = Layout::from_mask(2, 2, first_column);
  CHECK(mixing(std::vector{gathers, spreads}).back().share == 1);
  CHECK(mixing(std::vector{spreads, gathers}).back().share == 0.25);
}

TEST_CASE("what is reached is lost in a layer without blocks") {
  const std::vector<Layout> layers{patterns::random(5, 5, 1, 1), patterns::random(5, 5, 0, 1)};
  const std::vector<Mixing> after = mixing(layers);
  CHECK(after[0].share == 1);
  check_equal(after[1], {0, 0, 0, 0, 0});
}

TEST_CASE("rewiring makes a lattice a small world, balanced or not") {
  const auto steps = [](const Layout& layout) {
    const std::vector<Mixing> after = mixing(std::vector<Layout>(64, layout));
    return std::find_if(after.begin(), after.end(), [](const Mixing& one) { return one.share == 1; }) -
           after.begin() + 1;
  };
  CHECK(steps(patterns::watts_strogatz(256, 256, 9.0 / 256, 0, 1, true)) == 32);
  CHECK(steps(patterns::watts_strogatz(256, 256, 9.0 / 256, 0.2, 1, true)) <= 6);
  CHECK(steps(patterns::balanced_watts_strogatz(256, 256, 9.0 / 256, 0.2, 1, true)) <= 6);
}

TEST_CASE("no layers give no figures") { CHECK(mixing({}).empty()); }

TEST_CASE("layers that do not fit each other are refused by number") {
  CHECK(refusal({patterns::causal(3), patterns::random(4, 3, 1, 1), patterns::causal(3)}) ==
        "mixing: layer 3 has 3 block columns and layer 2 has 4 block rows; expected as many");
  CHECK(refusal({patterns::causal(3), Layout()}) ==
        "mixing: layer 2 has 0 × 0 blocks; expected 1 × 1 or more");
}
