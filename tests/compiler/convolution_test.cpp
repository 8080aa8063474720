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
      {"transposed kernel=3 input=7x8", "kernel=3x3 transposed input=7x8"},
      {"output-padding=1x0 transposed kernel=3 stride=2 padding=1 input=7",
       "kernel=3x3 stride=2x2 padding=1x1 transposed output-padding=1x0 input=7x7"},
      {"taps=110100 kernel=2x3 input=9", "kernel=2x3 input=9x9 taps=110100"},
      {"input=up-to:9x8 kernel=3", "kernel=3x3 input=up-to:9x8"},
      {"kernel=2 input=9 taps=100111 transposed", "kernel=2 transposed input=9 taps=100111"},
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

TEST_CASE("the extents of a transposed convolution's output are those computed by hand") {
  const std::vector<std::pair<std::string, Extents>> cases{
      {"kernel=3x3 stride=2 padding=1 output-padding=1 input=16x16", {1, 32, 32}},
      {"kernel=3x3 stride=2 padding=1 input=16x16", {1, 31, 31}},
      {"kernel=2x2 stride=3 padding=0:1x1:2 input=2x3", {1, 4, 5}},  // 3 - 1 + 2, 6 - 3 + 2
      {"kernel=3 dilation=4 input=5 output-padding=3", {1, 1, 16}},  // 4 + 8 + 1 + 3
      {"kernel=4x4x4 stride=2 padding=1 input=1x2x3", {2, 4, 6}},
      {"kernel=5 padding=same input=7", {1, 1, 7}},
  };
  for (const auto& [text, output] : cases) {
    CAPTURE(text);
    const Convolution convolution = parse_convolution(text + " transposed");
    CHECK(convolution.transposed);
    CHECK(convolution.output() == output);
    CHECK(convolution.output_positions() == std::int64_t{output[0]} * output[1] * output[2]);
  }
}

TEST_CASE("a transposed convolution gives back the extents of the input of the one it is the adjoint of") {
  for (const std::int32_t stride : {1, 2, 3})
    for (const std::int32_t dilation : {1, 2})
      for (const std::int32_t padding : {0, 1, 2})
        for (std::int32_t input = 5; input < 12; ++input) {
          Convolution plain = parse_convolution("kernel=3 input=9");
          plain.stride[2] = stride;
          plain.dilation[2] = dilation;
          plain.padding_before[2] = plain.padding_after[2] = padding;
          plain.input[2] = input;
          Convolution back = plain;
          back.transposed = true;
          back.input = plain.output();
          back.output_padding[2] = (input + 2 * padding - 2 * dilation - 1) % stride;
          CAPTURE(to_string(back));
          validate(back);
          CHECK(back.output() == plain.input);
        }
}

TEST_CASE("a mask of taps is of all blocks, or of each") {
  const Convolution all = parse_convolution("kernel=2x2 input=5");
  CHECK(all.taps_of_block() == 4);
  CHECK(all.present_taps(3) == 12);
  CHECK(all.has_tap(2, 3));
  CHECK(all.uses_tap(0));
  const Convolution shared = parse_convolution("kernel=2x2 input=5 taps=1010");
  CHECK(shared.taps() == 4);
  CHECK(shared.taps_of_block() == 2);
  CHECK(shared.present_taps(3) == 6);
  for (const std::int64_t block : {0, 1, 2}) {
    CHECK(shared.has_tap(block, 2));
    CHECK_FALSE(shared.has_tap(block, 3));
  }
  CHECK_FALSE(shared.uses_tap(1));
  const Convolution each = parse_convolution("kernel=2x2 input=5 taps=101000000010");
  CHECK(each.taps_of_block() == 0);
  CHECK(each.present_taps(3) == 3);
  CHECK(each.has_tap(0, 0));
  CHECK_FALSE(each.has_tap(1, 0));
  CHECK(each.has_tap(2, 2));
  CHECK(each.uses_tap(2));
  CHECK_FALSE(each.uses_tap(3));
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

TEST_CASE("a dynamic convolution takes inputs up to its own that have an output, and is one of each") {
  const Convolution dynamic = parse_convolution("kernel=3x2 stride=2 padding=1x0 input=up-to:9x8");
  CHECK(dynamic.dynamic);
  CHECK(dynamic.takes({1, 9, 8}));
  CHECK(dynamic.takes({1, 1, 2}));
  CHECK_FALSE(dynamic.takes({1, 1, 1}));  // the kernel is wider
  CHECK_FALSE(dynamic.takes({1, 0, 2}));
  CHECK_FALSE(dynamic.takes({1, 10, 2}));
  CHECK_FALSE(dynamic.takes({2, 9, 8}));
  CHECK(dynamic.output({1, 4, 5}) == Convolution::Extents{1, 2, 2});
  CHECK(dynamic.at({1, 4, 5}) == parse_convolution("kernel=3x2 stride=2 padding=1x0 input=4x5"));
  CHECK_THROWS_WITH(static_cast<void>(dynamic.at({1, 4, 1})),
                    "convolution: a kernel that reaches over 2 positions in an input of 1, padding included, "
                    "leaves no output; more padding would work");
  CHECK_THROWS_WITH(static_cast<void>(dynamic.at({1, 10, 2})),
                    "convolution: an input of 10x2, where it is up to 9x8");
  const Convolution fixed = dynamic.at({1, 4, 5});
  CHECK(fixed.takes({1, 4, 5}));
  CHECK_FALSE(fixed.takes({1, 3, 5}));
  const Convolution transposed = parse_convolution("kernel=2 padding=1 transposed input=up-to:9");
  CHECK(transposed.takes({1, 1, 2}));
  CHECK_FALSE(transposed.takes({1, 1, 1}));  // its padding is all of y
}

TEST_CASE("extents are one number for all dimensions, or one for each") {
  CHECK(parse_extents("24x20", 2) == Convolution::Extents{1, 24, 20});
  CHECK(parse_extents("7", 3) == Convolution::Extents{7, 7, 7});
  CHECK_THROWS_WITH(static_cast<void>(parse_extents("1x2x3", 2)),
                    "convolution: 1x2x3 has 3 dimensions where others have 2");
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
      {"kernel=3 input=up-to:", "convolution: '' is no number in 'input=up-to:'; " + form},
      {"kernel=up-to:3 input=9", "convolution: 'up-to:3' is no number in 'kernel=up-to:3'; " + form},
      {"kernel=3 input=up-to:2",
       "convolution: a kernel that reaches over 3 positions in an input of 2, padding included, leaves no "
       "output; more padding would work"},
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
      {"kernel=3 transposed=1 input=9", "convolution: 'transposed=1' is no word of one; " + form},
      {"kernel=3 stride=2 output-padding=1 input=9",
       "convolution: an output padding of one that is not transposed; the word transposed would work"},
      {"kernel=3x3 stride=2x3 transposed output-padding=1x3 input=9",
       "convolution: the output padding is 3 in its width; less than the stride of 3, or the dilation of 1, "
       "would work"},
      {"kernel=3 stride=2 transposed output-padding=-1 input=9",
       "convolution: the output padding is -1 in its width; 0 or more would work"},
      {"kernel=3 padding=3:2 transposed input=3",
       "convolution: a padding of 5 positions leaves no output in its width; less would work"},
      {"kernel=3 stride=2000000000 transposed input=2000000000",
       "convolution: more than 1073741824 positions"},
      {"kernel=2147483647 dilation=2147483647 stride=2147483647 transposed input=2147483647",
       "convolution: more than 1073741824 positions"},
      {"kernel=2x2 input=9 taps=", "convolution: taps are 0 or 1 each, such as taps=110100, not ''"},
      {"kernel=2x2 input=9 taps=1012", "convolution: taps are 0 or 1 each, such as taps=110100, not '2'"},
      {"kernel=2x2 input=9 taps=1 taps=1", "convolution: 'taps' comes twice"},
      {"kernel=2x2 input=9 taps=101110",
       "convolution: a mask of 6 taps of a kernel that has 4; 4, or as many for each block, would work"},
      {"kernel=2x2 input=9 taps=00000000", "convolution: a mask without a tap; one or more would work"},
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
  CHECK(refusal_of([](Convolution& c) { c.dimensions = 0, c.transposed = true; }) ==
        "convolution: one of 0 dimensions has no geometry");
  CHECK(refusal_of([](Convolution& c) { c.transposed = true, c.output_padding[0] = 1; }) ==
        "convolution: a depth where there are 2 dimensions");
  CHECK(refusal_of([](Convolution& c) { c.kernel[0] = 2; }) ==
        "convolution: a depth where there are 2 dimensions");
}

}  // namespace
}  // namespace sparsekiln
