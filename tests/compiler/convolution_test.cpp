#include <sparsekiln/convolution.h>

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

namespace sparsekiln {
namespace {

using Extents = Convolution::Extents;

TEST_CASE("a convolution is read from words in any order, and printed in one") {
  const std::vector<std::pair<std::string, std::string>> texts{
      {"none", "none"},
      {"kernel=3x3 input=32x32", "kernel=3x3 input=32x32"},
      {"input=32x16 padding=1 kernel=3", "kernel=3x3 padding=1x1 input=32x16"},
      {"kernel=5 stride=2 dilation=3 padding=2 input=100",
       "kernel=5 stride=2 dilation=3 padding=2 input=100"},
      {"kernel=2x3 stride=1x2 padding=0:1x1:2 input=9x9", "kernel=2x3 stride=1x2 padding=0:1x1:2 input=9x9"},
      {"kernel=2 padding=0:1 input=9x9", "kernel=2x2 padding=0:1x0:1 input=9x9"},
      {"kernel=3x3x3 stride=1 dilation=1 padding=0 input=4x5x6", "kernel=3x3x3 input=4x5x6"},
      {"  kernel=1   input=7 ", "kernel=1 input=7"},
      {"kernel=3 stride=2 padding=valid input=9", "kernel=3 stride=2 input=9"},
  };
  for (const auto& [text, printed] : texts) {
    CAPTURE(text);
    const Convolution convolution = parse_convolution(text);
    CHECK(to_string(convolution) == printed);
    CHECK(parse_convolution(printed) == convolution);
  }
}

TEST_CASE(
    "the words of a convolution are its geometry, the last dimensions where there are fewer than three") {
  const Convolution convolution =
      parse_convolution("kernel=2x3 stride=1x2 dilation=3x1 padding=0:1x1:2 input=9x8");
  CHECK(convolution.present());
  CHECK(convolution.dimensions == 2);
  CHECK(convolution.kernel == Extents{1, 2, 3});
  CHECK(convolution.stride == Extents{1, 1, 2});
  CHECK(convolution.dilation == Extents{1, 3, 1});
  CHECK(convolution.padding_before == Extents{0, 0, 1});
  CHECK(convolution.padding_after == Extents{0, 1, 2});
  CHECK(convolution.input == Extents{1, 9, 8});
  CHECK(convolution.taps() == 6);
  CHECK(convolution.input_positions() == 72);
  CHECK_FALSE(Convolution{}.present());
}

TEST_CASE("the extents of the output are those computed by hand") {
  const std::vector<std::pair<std::string, Extents>> cases{
      {"kernel=3x3 stride=2 padding=1 input=32x32", {1, 16, 16}},
      {"kernel=7x7 stride=2 padding=3 input=224x224", {1, 112, 112}},
      {"kernel=3 dilation=2 input=10", {1, 1, 6}},                   // a reach of 5
      {"kernel=2x2 stride=3 padding=0:1x1:2 input=5x7", {1, 2, 3}},  // (6 - 2) / 3, (10 - 2) / 3
      {"kernel=1x1 stride=2 input=5x4", {1, 3, 2}},
      {"kernel=3x3x3 stride=1x2x2 padding=1 input=4x5x6", {4, 3, 3}},
      {"kernel=5 padding=2 input=1", {1, 1, 1}},
  };
  for (const auto& [text, output] : cases) {
    CAPTURE(text);
    const Convolution convolution = parse_convolution(text);
    CHECK(convolution.output() == output);
    CHECK(convolution.output_positions() == std::int64_t{output[0]} * output[1] * output[2]);
  }
}

TEST_CASE("same padding keeps the extents of the input, with the odd position after it") {
  for (const char* text :
       {"kernel=3x3 padding=same input=7x8", "kernel=4x1 dilation=3 padding=same input=5x9",
        "kernel=2x3x4 padding=same input=3x3x3"}) {
    CAPTURE(text);
    const Convolution convolution = parse_convolution(text);
    CHECK(convolution.output() == convolution.input);
  }
  const Convolution even = parse_convolution("kernel=4 padding=same input=9");
  CHECK(even.padding_before[2] == 1);
  CHECK(even.padding_after[2] == 2);
}

TEST_CASE("valid padding is none") {
  CHECK(parse_convolution("kernel=3x3 padding=valid input=7x8") == parse_convolution("kernel=3 input=7x8"));
}

/// Why a text is refused; empty where it is not.
std::string refusal(const std::string& text) {
  try {
    static_cast<void>(parse_convolution(text));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return "";
}

TEST_CASE("texts that are no convolution are refused, with what is wrong and what would work") {
  const std::string form =
      "write words such as kernel=3x3 stride=2 dilation=1 padding=1 input=32x32; kernel and input are needed";
  const std::vector<std::pair<std::string, std::string>> texts{
      {"", "convolution '' lacks its kernel; " + form},
      {"kernel=3x3", "convolution 'kernel=3x3' lacks its input; " + form},
      {"input=9", "convolution 'input=9' lacks its kernel; " + form},
      {"kernel=3 input=9 groups=2", "convolution: 'groups=2' is no word of one; " + form},
      {"kernel=3 input=9 3", "convolution: '3' is no word of one; " + form},
      {"kernel=3 input=", "convolution: '' is no number in 'input='; " + form},
      {"kernel=3y3 input=9", "convolution: '3y3' is no number in 'kernel=3y3'; " + form},
      {"kernel=3 input=99999999999",
       "convolution: '99999999999' is no number in 'input=99999999999'; " + form},
      {"kernel=3 kernel=3 input=9", "convolution: 'kernel' comes twice"},
      {"kernel=3 padding=1 padding=same input=9", "convolution: 'padding' comes twice"},
      {"kernel=3 padding=1:2:3 input=9", "convolution: 'padding=1:2:3' has more than two sides"},
      {"kernel=1x1x1x1 input=9", "convolution: 'kernel=1x1x1x1' has 4 dimensions; 1, 2 or 3 would work"},
      {"kernel=3x3 input=9x9x9", "convolution: kernel has 2 dimensions where others have 3"},
      {"kernel=3 stride=2x2 input=9x9x9", "convolution: stride has 2 dimensions where others have 3"},
      {"kernel=3 stride=2 padding=same input=9",
       "convolution: padding=same keeps the extents of the input, and a stride does not; numbers would work"},
      {"kernel=0 input=9", "convolution: the kernel is 0 in its width; 1 or more would work"},
      {"kernel=3x3 stride=0x1 input=9x9", "convolution: the stride is 0 in its height; 1 or more would work"},
      {"kernel=3 dilation=-1 input=9", "convolution: the dilation is -1 in its width; 1 or more would work"},
      {"kernel=1x1x1 input=0x9x9", "convolution: the input is 0 in its depth; 1 or more would work"},
      {"kernel=3 padding=0:-1 input=9", "convolution: the padding is -1 in its width; 0 or more would work"},
      {"kernel=3x3 dilation=5 padding=1 input=9x8",
       "convolution: a kernel that reaches over 11 positions in an input of 10, padding included, leaves no "
       "output; more padding would work"},
      {"kernel=200x200 input=300x300", "convolution: more than 32768 taps"},
      {"kernel=1 input=2000000000", "convolution: more than 1073741824 positions"},
      {"kernel=1x1 input=40000x40000", "convolution: more than 1073741824 positions"},
      {"kernel=1 padding=1000000000 input=1000000000", "convolution: more than 1073741824 positions"},
  };
  for (const auto& [text, why] : texts) {
    CAPTURE(text);
    CHECK(refusal(text) == why);
  }
}

/// Why a change of a sound convolution is refused.
template <class Change>
std::string refusal_of(const Change& change) {
  Convolution convolution = parse_convolution("kernel=3x3 padding=1 input=9x9");
  change(convolution);
  try {
    validate(convolution);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return "";
}

TEST_CASE("a geometry that no text gives is refused as well") {
  CHECK(refusal_of([](Convolution&) {}).empty());
  CHECK(refusal_of([](Convolution& c) { c = {}; }).empty());
  CHECK(refusal_of([](Convolution& c) { c.dimensions = 0; }) ==
        "convolution: one of 0 dimensions has no geometry");
  CHECK(refusal_of([](Convolution& c) { c.dimensions = 4; }) ==
        "convolution: 4 dimensions; 1, 2 or 3 would work");
  CHECK(refusal_of([](Convolution& c) { c.kernel[0] = 2; }) ==
        "convolution: a depth where there are 2 dimensions");
}

}  // namespace
}  // namespace sparsekiln
