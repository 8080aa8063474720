#include "compiler/correlation.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

namespace sparsekiln {
namespace {

using Extents = Convolution::Extents;

/// Geometries of 1 to 3 dimensions, with all that is small: kernels wider than the input, strides wider than
/// the kernel, paddings wider than both, transposed ones and masks.
class Geometries {
 public:
  Convolution next() {
    for (;;) {
      Convolution made;
      made.dimensions = any(1, 3);
      made.transposed = any(0, 2) == 0;
      for (std::size_t i = 3 - static_cast<std::size_t>(made.dimensions); i < 3; ++i) {
        made.kernel[i] = any(1, 4);
        made.stride[i] = any(1, 3);
        made.dilation[i] = any(1, 3);
        made.padding_before[i] = any(0, 4);
        made.padding_after[i] = any(0, 4);
        made.input[i] = any(1, 8);
        if (made.transposed) made.output_padding[i] = any(0, std::max(made.stride[i], made.dilation[i]) - 1);
      }
      const std::int32_t blocks = std::max(0, any(-3, 2));  // 0: no mask
      for (std::int32_t tap = 0; tap < blocks * made.taps(); ++tap) made.tap_mask.push_back(any(0, 1) == 1);
      try {
        validate(made);
        return made;
      } catch (const Error&) {  // no output
      }
    }
  }

 private:
  std::int32_t any(std::int32_t least, std::int32_t most) {
    return least + static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(most - least + 1));
  }
  std::mt19937 random_{7};
};

std::vector<Extents> all(const Extents& extents) {
  std::vector<Extents> positions;
  for (std::int32_t d = 0; d < extents[0]; ++d)
    for (std::int32_t h = 0; h < extents[1]; ++h)
      for (std::int32_t w = 0; w < extents[2]; ++w) positions.push_back({d, h, w});
  return positions;
}

bool inside(const Extents& position, const Extents& extents) {
  for (std::size_t i = 0; i < 3; ++i)
    if (position[i] < 0 || position[i] >= extents[i]) return false;
  return true;
}

/// The position that tap r of the window at `at` has; nothing outside of `extents`.
std::optional<Extents> of_window(const Convolution& convolution, const Extents& extents, const Extents& at,
                                 const Extents& r) {
  Extents from{};
  for (std::size_t i = 0; i < 3; ++i)
    from[i] = at[i] * convolution.stride[i] + r[i] * convolution.dilation[i] - convolution.padding_before[i];
  return inside(from, extents) ? std::optional(from) : std::nullopt;
}

/// By the definition: the position of x, or of dy, that tap r multiplies for position `at` of y, or of dx.
std::optional<Extents> defined(const Convolution& convolution, bool forward, const Extents& at,
                               const Extents& r) {
  const Extents& from = forward ? convolution.input : convolution.output();
  const Extents& to = forward ? convolution.output() : convolution.input;
  if (forward != convolution.transposed) return of_window(convolution, from, at, r);
  for (const Extents& p : all(from))
    if (of_window(convolution, to, p, r) == at) return p;
  return std::nullopt;
}

std::int64_t number_of(const Correlation& lattice, const Extents& point) {
  return (std::int64_t{point[0]} * lattice.pitch[1] + point[1]) * lattice.pitch[2] + point[2];
}

/// The position at a number of a phase image of x: the coordinates of its points are those from origin on, in
/// rows of pitch[2] and planes of pitch[1] rows.
std::optional<Extents> decoded(const Correlation& lattice, const Extents& phase, std::int64_t number) {
  const std::int64_t place = number - number_of(lattice, lattice.origin);
  if (place < 0) return std::nullopt;
  const std::int64_t row = place / lattice.pitch[2];
  const Extents point{static_cast<std::int32_t>(row / lattice.pitch[1]) + lattice.origin[0],
                      static_cast<std::int32_t>(row % lattice.pitch[1]) + lattice.origin[1],
                      static_cast<std::int32_t>(place % lattice.pitch[2]) + lattice.origin[2]};
  Extents from{};
  for (std::size_t i = 0; i < 3; ++i) from[i] = point[i] * lattice.in_step[i] + phase[i];
  return inside(from, lattice.input) ? std::optional(from) : std::nullopt;
}

TEST_CASE("what a tap reads by its displacement is what the definition of the convolution says") {
  Geometries geometries;
  for (int turn = 0; turn < 400; ++turn) {
    const Convolution convolution = geometries.next();
    CAPTURE(to_string(convolution));
    for (const Operation operation : {Operation::forward, Operation::grad_input}) {
      CAPTURE(name(operation));
      const bool forward = operation == Operation::forward;
      const Correlation lattice(convolution, operation);
      const std::vector<Extents> kernel = all(convolution.kernel);
      std::size_t wrong = 0;
      for (std::size_t c = 0; c < lattice.classes.size(); ++c)
        for (const Extents& point : all(lattice.points)) {
          Extents at{};
          for (std::size_t i = 0; i < 3; ++i) at[i] = point[i] * lattice.out_step[i] + lattice.classes[c][i];
          if (!inside(at, lattice.output)) continue;
          std::vector<std::optional<Extents>> read(kernel.size());
          for (const Correlation::Tap& tap : lattice.taps[c])
            read[static_cast<std::size_t>(tap.number)] =
                decoded(lattice, lattice.phases[static_cast<std::size_t>(tap.phase)],
                        number_of(lattice, point) + tap.displacement);
          for (std::size_t r = 0; r < kernel.size(); ++r)
            if (convolution.uses_tap(static_cast<std::int32_t>(r))
                    ? read[r] != defined(convolution, forward, at, kernel[r])
                    : read[r].has_value())
              ++wrong;
        }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("every position of y is one point of one class, within the span of the lattice") {
  Geometries geometries;
  for (int turn = 0; turn < 100; ++turn) {
    const Convolution convolution = geometries.next();
    CAPTURE(to_string(convolution));
    for (const Operation operation : {Operation::forward, Operation::grad_input}) {
      const Correlation lattice(convolution, operation);
      const bool forward = operation == Operation::forward;
      CHECK(lattice.output == (forward ? convolution.output() : convolution.input));
      CHECK(lattice.input == (forward ? convolution.input : convolution.output()));
      std::vector<Extents> seen;
      for (const Extents& of_class : lattice.classes)
        for (const Extents& point : all(lattice.points)) {
          Extents at{};
          for (std::size_t i = 0; i < 3; ++i) at[i] = point[i] * lattice.out_step[i] + of_class[i];
          if (!inside(at, lattice.output)) continue;
          seen.push_back(at);
          CHECK(number_of(lattice, point) < lattice.span());
        }
      std::sort(seen.begin(), seen.end());
      CHECK(seen == all(lattice.output));
    }
  }
}

TEST_CASE(
    "the taps of a class ascend, all classes together have each used one once, and displacements have "
    "bounds") {
  Geometries geometries;
  for (int turn = 0; turn < 100; ++turn) {
    const Convolution convolution = geometries.next();
    CAPTURE(to_string(convolution));
    for (const Operation operation : {Operation::forward, Operation::grad_input}) {
      const Correlation lattice(convolution, operation);
      std::vector<std::int32_t> numbers;
      for (const auto& taps : lattice.taps)
        for (std::size_t i = 0; i < taps.size(); ++i) {
          if (i > 0) CHECK(taps[i].number > taps[i - 1].number);
          CHECK(taps[i].displacement >= lattice.least);
          CHECK(taps[i].displacement <= lattice.most);
          numbers.push_back(taps[i].number);
        }
      std::sort(numbers.begin(), numbers.end());
      std::vector<std::int32_t> used;
      for (std::int32_t tap = 0; tap < convolution.taps(); ++tap)
        if (convolution.uses_tap(tap)) used.push_back(tap);
      CHECK(numbers == used);
    }
  }
}

TEST_CASE("a kernel of 3 with a padding of 1 computes one point more a row than y has") {
  const Correlation lattice(parse_convolution("kernel=3x3 padding=1 input=8x6"), Operation::forward);
  CHECK(lattice.points == Extents{1, 8, 6});
  CHECK(lattice.pitch[2] == 7);
  CHECK(lattice.span() == 7 * 7 + 6);
  CHECK(lattice.phases.size() == 1);
  CHECK(lattice.least == -8);
  CHECK(lattice.most == 8);
}

TEST_CASE("strides make phases of the product, and classes of its gradient") {
  const Convolution convolution = parse_convolution("kernel=3x3 stride=2 padding=1 input=8x8");
  const Correlation forward(convolution, Operation::forward);
  CHECK(forward.phases.size() == 4);
  CHECK(forward.classes.size() == 1);
  CHECK(forward.points == Extents{1, 4, 4});
  const Correlation gradient(convolution, Operation::grad_input);
  CHECK(gradient.phases.size() == 1);
  REQUIRE(gradient.classes.size() == 4);
  CHECK(gradient.points == Extents{1, 4, 4});
  std::vector<std::size_t> taps;
  for (const auto& of_class : gradient.taps) taps.push_back(of_class.size());
  CHECK(taps == std::vector<std::size_t>{1, 2, 2, 4});
}

TEST_CASE("a transposed convolution has classes, and its gradient phases") {
  const Convolution convolution =
      parse_convolution("kernel=3x3 stride=2 padding=1 transposed output-padding=1 input=4x4");
  const Correlation forward(convolution, Operation::forward);
  const Correlation gradient(convolution, Operation::grad_input);
  CHECK(forward.classes.size() == 4);
  CHECK(forward.phases.size() == 1);
  CHECK(forward.output == Extents{1, 8, 8});
  CHECK(gradient.classes.size() == 1);
  CHECK(gradient.phases.size() == 4);
  CHECK(gradient.output == Extents{1, 4, 4});
}

TEST_CASE("a mask narrows what tiles read") {
  const Correlation upper(parse_convolution("kernel=3x3 padding=1 input=8x6 taps=111110000"),
                          Operation::forward);
  CHECK(upper.least == -8);
  CHECK(upper.most == 0);
  const Correlation even(parse_convolution("kernel=3 stride=2 input=9 taps=101"), Operation::forward);
  CHECK(even.phases == std::vector<Extents>{{0, 0, 0}});
}

TEST_CASE("a stride that is wider than the kernel leaves classes without taps") {
  const Correlation gradient(parse_convolution("kernel=1 stride=3 input=9"), Operation::grad_input);
  REQUIRE(gradient.taps.size() == 3);
  CHECK(gradient.taps[0].size() == 1);
  CHECK(gradient.taps[1].empty());
  CHECK(gradient.taps[2].empty());
}

}  // namespace
}  // namespace sparsekiln
