#include <sparsekiln/convolution.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

#include "compiler/edge_runs.h"
#include "oracle/edge_reference.h"

namespace sparsekiln {
namespace {

EdgeSituations situations(const std::string& text) { return edge_situations(parse_convolution(text)); }

TEST_CASE("outputs in the corners, at the sides and inside of an image are in situations of their own") {
  const EdgeSituations found = situations("kernel=3x3 padding=1 input=4x5");
  CHECK(found.count == 9);
  const std::vector<std::int32_t> wanted{0, 1, 1, 1, 2, 3, 4, 4, 4, 5, 3, 4, 4, 4, 5, 6, 7, 7, 7, 8};
  CHECK(found.of_position == wanted);
}

TEST_CASE("without padding there is one situation") {
  CHECK(situations("kernel=3x3 input=8x8").count == 1);
  CHECK(situations("kernel=1 input=1").of_position == std::vector<std::int32_t>{0});
}

TEST_CASE("taps that no block has make no situations") {
  CHECK(situations("kernel=3x3 padding=1 input=6x6 taps=000010000").count == 1);
  // Those above the middle: the first row of the image, and all others.
  const EdgeSituations above = situations("kernel=3x3 padding=1 input=3x2 taps=010000000");
  CHECK(above.of_position == std::vector<std::int32_t>{0, 0, 1, 1, 1, 1});
  // One block of two has the tap, which is enough.
  CHECK(situations("kernel=3 padding=1 input=4 taps=010110").of_position ==
        std::vector<std::int32_t>{0, 1, 1, 1});
}

TEST_CASE("positions of which all taps are outside are in one situation, wherever they are") {
  const EdgeSituations found = situations("kernel=1x1 padding=2 input=1x1");
  CHECK(found.count == 2);
  CHECK(std::count(found.of_position.begin(), found.of_position.end(), 1) == 1);
  CHECK(found.of_position[12] == 1);
}

TEST_CASE("between two strides of a transposed convolution is not outside of its input") {
  // The first output meets x[-1], the last one x[3]; odd ones have one tap, which is inside.
  const EdgeSituations found = situations("kernel=3 stride=2 transposed input=3");
  CHECK(found.of_position == std::vector<std::int32_t>{0, 1, 1, 1, 1, 1, 2});
}

TEST_CASE("situations of random convolutions are those of their definition") {
  std::mt19937 numbers(5);
  const auto up_to = [&](int most) {
    return static_cast<std::int32_t>(1 + numbers() % static_cast<unsigned>(most));
  };
  int checked = 0;
  int several = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    Convolution convolution;
    convolution.dimensions = up_to(3);
    convolution.transposed = trial % 2 == 0;
    for (std::size_t i = 3 - static_cast<std::size_t>(convolution.dimensions); i < 3; ++i) {
      convolution.kernel[i] = up_to(4);
      convolution.stride[i] = up_to(3);
      convolution.dilation[i] = up_to(3);
      convolution.padding_before[i] = up_to(5) - 1;
      convolution.padding_after[i] = up_to(5) - 1;
      convolution.input[i] = up_to(7);
      if (convolution.transposed)
        convolution.output_padding[i] = up_to(std::max(convolution.stride[i], convolution.dilation[i])) - 1;
    }
    if (trial % 3 == 0) {
      for (std::int32_t tap = 0; tap < convolution.taps(); ++tap)
        convolution.tap_mask.push_back(numbers() % 2 == 0);
      convolution.tap_mask.front() = true;
    }
    try {
      validate(convolution);
    } catch (const Error&) {
      continue;
    }
    const EdgeSituations found = edge_situations(convolution);
    const std::vector<std::int32_t> wanted = edge_reference(convolution);
    CAPTURE(to_string(convolution));
    REQUIRE(found.of_position == wanted);
    REQUIRE(found.count == *std::max_element(wanted.begin(), wanted.end()) + 1);
    ++checked;
    several += found.count > 2 ? 1 : 0;
  }
  CHECK(checked > 500);
  CHECK(several > 200);
}

TEST_CASE("the runs of a large image are as few as those of a small one") {
  const EdgeRuns large = edge_runs(parse_convolution("kernel=5 padding=2 input=1000000000"));
  CHECK(large.count == 5);
  CHECK(large.begins[2] == std::vector<std::int32_t>{1, 2, 999999998, 999999999});
  CHECK(edge_runs(parse_convolution("kernel=3 stride=2 transposed input=1000000")).count == 3);
  CHECK(edge_runs(parse_convolution("kernel=3 padding=100000000 input=9")).count == 6);
  CHECK(edge_runs(parse_convolution("kernel=16 dilation=512 input=20000 transposed")).count == 31);
}

TEST_CASE("what has no edge situations is refused by a sentence") {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      (void)situations(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(
      refusal("kernel=3 padding=1 input=up-to:9") ==
      "edge situations of 'kernel=3 padding=1 input=up-to:9': they follow from the extents of the input; one "
      "input, without up-to, or a bias, would work");
  CHECK(refusal("none").starts_with("edge situations are a convolution's; "));
  CHECK(refusal("kernel=70x70 padding=35 input=100x100").find("more than 4096 ways") != std::string::npos);
  CHECK(refusal("kernel=5000 padding=2500 input=9000").find("more than 4096 ways") != std::string::npos);
  CHECK(refusal("kernel=5000 stride=2 transposed input=9000").find("4096") != std::string::npos);
}

}  // namespace
}  // namespace sparsekiln
