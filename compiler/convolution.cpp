#include <sparsekiln/convolution.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

namespace sparsekiln {
namespace {

using Extents = Convolution::Extents;

constexpr std::int64_t kMostPositions = std::int64_t{1} << 30;
constexpr std::int64_t kMostTaps = std::int64_t{1} << 15;
constexpr std::int64_t kMostClasses = std::int64_t{1} << 12;
constexpr std::int64_t kMostPoints = std::int64_t{1} << 31;
constexpr std::string_view kForm =
    "write words such as kernel=3x3 stride=2 dilation=1 padding=1 input=32x32; kernel and input are needed";
constexpr std::string_view kUpTo = "up-to:";

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

/// The numbers of a word, separated by `by`.
std::vector<std::string_view> parts_of(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(by);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::int32_t number_of(std::string_view text, std::string_view word) {
  std::int32_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size())
    refuse(
        fmt::format("convolution: '{}' is no number in '{}'; {}", printable(text), printable(word), kForm));
  return value;
}

/// The words of a convolution, before it is known how many dimensions there are.
struct Words {
  std::optional<std::vector<std::int32_t>> kernel, stride, dilation, before, after, input, output_padding;
  std::vector<bool> tap_mask;
  bool same = false;
  bool transposed = false;
  bool dynamic = false;
};

std::vector<std::int32_t> numbers_of(std::string_view text, std::string_view word) {
  std::vector<std::int32_t> numbers;
  for (const std::string_view part : parts_of(text, 'x')) numbers.push_back(number_of(part, word));
  if (numbers.size() > 3)
    refuse(fmt::format("convolution: '{}' has {} dimensions; 1, 2 or 3 would work", printable(word),
                       numbers.size()));
  return numbers;
}

void read_padding(Words& words, std::string_view text, std::string_view word) {
  words.same = text == "same";
  if (words.same || text == "valid") {
    words.before = words.after = std::vector<std::int32_t>{0};
    return;
  }
  std::string before;
  std::string after;
  for (const std::string_view part : parts_of(text, 'x')) {
    const auto sides = parts_of(part, ':');
    if (sides.size() > 2) refuse(fmt::format("convolution: '{}' has more than two sides", printable(word)));
    before += fmt::format("{}{}", before.empty() ? "" : "x", sides.front());
    after += fmt::format("{}{}", after.empty() ? "" : "x", sides.back());
  }
  words.before = numbers_of(before, word);
  words.after = numbers_of(after, word);
}

void read_mask(Words& words, std::string_view digits) {
  if (!words.tap_mask.empty()) refuse("convolution: 'taps' comes twice");
  const std::size_t wrong = digits.find_first_not_of("01");
  if (digits.empty() || wrong != std::string_view::npos)
    refuse(fmt::format("convolution: taps are 0 or 1 each, such as taps=110100, not '{}'",
                       printable(digits.substr(digits.empty() ? 0 : wrong).substr(0, 16))));
  for (const char digit : digits) words.tap_mask.push_back(digit == '1');
}

void read_word(Words& words, std::string_view word) {
  if (word == "transposed") {
    words.transposed = true;
    return;
  }
  const std::size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  std::string_view text = equals == std::string_view::npos ? "" : word.substr(equals + 1);
  const auto read = [&](auto& into) {
    if (into) refuse(fmt::format("convolution: '{}' comes twice", printable(name)));
    into = numbers_of(text, word);
  };
  if (name == "kernel") return read(words.kernel);
  if (name == "stride") return read(words.stride);
  if (name == "dilation") return read(words.dilation);
  if (name == "input") {
    words.dynamic = text.starts_with(kUpTo);
    if (words.dynamic) text.remove_prefix(kUpTo.size());
    return read(words.input);
  }
  if (name == "output-padding") return read(words.output_padding);
  if (name == "taps") return read_mask(words, text);
  if (name != "padding")
    refuse(fmt::format("convolution: '{}' is no word of one; {}", printable(word), kForm));
  if (words.before) refuse("convolution: 'padding' comes twice");
  read_padding(words, text, word);
}

/// The last `dimensions` extents; one number is that of all.
Extents spread(const std::optional<std::vector<std::int32_t>>& numbers, std::size_t dimensions,
               std::int32_t elsewhere, std::string_view name) {
  Extents extents{elsewhere, elsewhere, elsewhere};
  if (!numbers) return extents;
  if (numbers->size() != 1 && numbers->size() != dimensions)
    refuse(fmt::format("convolution: {} has {} dimensions where others have {}", name, numbers->size(),
                       dimensions));
  for (std::size_t i = 0; i < dimensions; ++i)
    extents[3 - dimensions + i] = numbers->size() == 1 ? numbers->front() : (*numbers)[i];
  return extents;
}

std::string joined(const Extents& extents, std::int32_t dimensions) {
  return fmt::format("{}", fmt::join(extents.end() - dimensions, extents.end(), "x"));
}

std::int64_t product(const Extents& extents) { return std::int64_t{extents[0]} * extents[1] * extents[2]; }

/// How far the taps of a dimension reach, at most.
std::int64_t reach(const Convolution& convolution, std::size_t dimension) {
  return std::int64_t{convolution.dilation[dimension]} * (convolution.kernel[dimension] - 1) + 1;
}

std::int64_t paddings(const Convolution& convolution, std::size_t dimension) {
  return std::int64_t{convolution.padding_before[dimension]} + convolution.padding_after[dimension];
}

/// Without the bounds that `validate` puts on it.
std::int64_t output_extent(const Convolution& convolution, std::size_t i, std::int64_t input) {
  const std::int64_t around = paddings(convolution, i) - reach(convolution, i);
  if (convolution.transposed)
    return (input - 1) * convolution.stride[i] - around + convolution.output_padding[i];
  return (input + around) / convolution.stride[i] + 1;
}

/// The extent that taps reach over: x's, or y's of a transposed convolution.
std::int64_t wide_extent(const Convolution& convolution, std::size_t i, std::int64_t input) {
  return convolution.transposed ? output_extent(convolution, i, input) : input;
}

constexpr std::array<std::string_view, 3> kNames{"depth", "height", "width"};

bool leaves_output(const Convolution& convolution, std::size_t i, std::int64_t input) {
  const std::int64_t wide = wide_extent(convolution, i, input);
  return wide >= 1 && reach(convolution, i) <= wide + paddings(convolution, i);
}

/// Where it does not.
[[noreturn]] void refuse_no_output(const Convolution& convolution, std::size_t i, std::int64_t input) {
  const std::int64_t wide = wide_extent(convolution, i, input);
  if (wide < 1)
    refuse(fmt::format("convolution: a padding of {} positions leaves no output in its {}; less would work",
                       paddings(convolution, i), kNames[i]));
  refuse(
      fmt::format("convolution: a kernel that reaches over {} positions in an input of {}, padding included, "
                  "leaves no output; more padding would work",
                  reach(convolution, i), wide + paddings(convolution, i)));
}

}  // namespace

bool Convolution::has_tap(std::int64_t block, std::int32_t tap) const {
  if (tap_mask.empty()) return true;
  const bool shared = tap_mask.size() == static_cast<std::size_t>(taps());
  return tap_mask[static_cast<std::size_t>((shared ? 0 : block * taps()) + tap)];
}

bool Convolution::uses_tap(std::int32_t tap) const {
  const auto step = static_cast<std::size_t>(taps());
  for (auto i = static_cast<std::size_t>(tap); i < tap_mask.size(); i += step)
    if (tap_mask[i]) return true;
  return tap_mask.empty();
}

std::int32_t Convolution::taps_of_block() const {
  if (tap_mask.empty()) return taps();
  if (tap_mask.size() != static_cast<std::size_t>(taps())) return 0;
  return static_cast<std::int32_t>(std::count(tap_mask.begin(), tap_mask.end(), true));
}

std::int64_t Convolution::present_taps(std::int64_t blocks) const {
  const std::int32_t of_block = taps_of_block();
  return of_block != 0 ? blocks * of_block : std::count(tap_mask.begin(), tap_mask.end(), true);
}

Extents Convolution::output(const Extents& of_input) const {
  Extents result{};
  for (std::size_t i = 0; i < 3; ++i)
    result[i] = static_cast<std::int32_t>(output_extent(*this, i, of_input[i]));
  return result;
}

bool Convolution::takes(const Extents& of_input) const {
  if (!dynamic) return of_input == input;
  for (std::size_t i = 0; i < 3; ++i) {
    if (of_input[i] < 1 || of_input[i] > input[i] || !leaves_output(*this, i, of_input[i])) return false;
  }
  return true;
}

Convolution Convolution::at(const Extents& of_input) const {
  for (std::size_t i = 0; dynamic && i < 3; ++i)
    if (of_input[i] >= 1 && of_input[i] <= input[i] && !leaves_output(*this, i, of_input[i]))
      refuse_no_output(*this, i, of_input[i]);
  if (!takes(of_input))
    refuse(fmt::format("convolution: an input of {}, where it is {}{}", joined(of_input, dimensions),
                       dynamic ? "up to " : "", joined(input, dimensions)));
  Convolution fixed = *this;
  fixed.input = of_input;
  fixed.dynamic = false;
  return fixed;
}

std::int64_t Convolution::input_positions() const { return product(input); }
std::int64_t Convolution::output_positions() const { return product(output()); }

Convolution parse_convolution(std::string_view text) {
  Convolution convolution;
  if (text == "none") return convolution;
  Words words;
  for (const std::string_view word : parts_of(text, ' '))
    if (!word.empty()) read_word(words, word);
  if (!words.kernel || !words.input)
    refuse(fmt::format("convolution '{}' lacks its {}; {}", printable(text),
                       words.kernel ? "input" : "kernel", kForm));
  std::size_t dimensions = 1;
  for (const auto* numbers :
       {&words.kernel, &words.stride, &words.dilation, &words.before, &words.input, &words.output_padding})
    if (*numbers) dimensions = std::max(dimensions, (*numbers)->size());
  convolution.dimensions = static_cast<std::int32_t>(dimensions);
  convolution.kernel = spread(words.kernel, dimensions, 1, "kernel");
  convolution.stride = spread(words.stride, dimensions, 1, "stride");
  convolution.dilation = spread(words.dilation, dimensions, 1, "dilation");
  convolution.padding_before = spread(words.before, dimensions, 0, "padding");
  convolution.padding_after = spread(words.after, dimensions, 0, "padding");
  convolution.input = spread(words.input, dimensions, 1, "input");
  convolution.dynamic = words.dynamic;
  convolution.transposed = words.transposed;
  convolution.output_padding = spread(words.output_padding, dimensions, 0, "output-padding");
  convolution.tap_mask = std::move(words.tap_mask);
  if (words.same) {
    if (convolution.stride != Extents{1, 1, 1})
      refuse(
          "convolution: padding=same keeps the extents of the input, and a stride does not; numbers would "
          "work");
    for (std::size_t i = 0; i < 3; ++i) {
      const auto total = static_cast<std::int32_t>(reach(convolution, i) - 1);
      convolution.padding_before[i] = total / 2;
      convolution.padding_after[i] = total - total / 2;
    }
  }
  validate(convolution);
  return convolution;
}

Extents parse_extents(std::string_view text, std::int32_t dimensions) {
  const std::vector<std::string_view> parts = parts_of(text, 'x');
  if (std::any_of(parts.begin(), parts.end(), [](std::string_view part) {
        return part.empty() || part.find_first_not_of("0123456789") != std::string_view::npos;
      }))
    refuse(fmt::format("extents '{}': numbers joined by x, such as 24x20, would work", printable(text)));
  return spread(numbers_of(text, text), static_cast<std::size_t>(dimensions), 1, text);
}

std::string to_string(const Convolution& convolution) {
  if (!convolution.present()) return "none";
  const auto text = [&](const Extents& extents) { return joined(extents, convolution.dimensions); };
  std::string result = fmt::format("kernel={}", text(convolution.kernel));
  if (convolution.stride != Extents{1, 1, 1}) result += fmt::format(" stride={}", text(convolution.stride));
  if (convolution.dilation != Extents{1, 1, 1})
    result += fmt::format(" dilation={}", text(convolution.dilation));
  const Extents& before = convolution.padding_before;
  const Extents& after = convolution.padding_after;
  if (before == after && before != Extents{0, 0, 0}) result += fmt::format(" padding={}", text(before));
  if (before != after) {
    std::vector<std::string> sides;
    for (std::size_t i = 3 - static_cast<std::size_t>(convolution.dimensions); i < 3; ++i)
      sides.push_back(fmt::format("{}:{}", before[i], after[i]));
    result += fmt::format(" padding={}", fmt::join(sides, "x"));
  }
  if (convolution.transposed) result += " transposed";
  if (convolution.output_padding != Extents{0, 0, 0})
    result += fmt::format(" output-padding={}", text(convolution.output_padding));
  result += fmt::format(" input={}{}", convolution.dynamic ? kUpTo : "", text(convolution.input));
  if (convolution.tap_mask.empty()) return result;
  result += " taps=";
  for (const bool there : convolution.tap_mask) result += there ? '1' : '0';
  return result;
}

namespace {

void validate_output_padding(const Convolution& convolution, std::size_t i) {
  const std::int32_t more = convolution.output_padding[i];
  if (more != 0 && !convolution.transposed)
    refuse("convolution: an output padding of one that is not transposed; the word transposed would work");
  if (more != 0 && more >= std::max(convolution.stride[i], convolution.dilation[i]))
    refuse(
        fmt::format("convolution: the output padding is {} in its {}; less than the stride of {}, or the "
                    "dilation of {}, would work",
                    more, kNames[i], convolution.stride[i], convolution.dilation[i]));
}

void validate_mask(const Convolution& convolution) {
  const std::vector<bool>& mask = convolution.tap_mask;
  if (mask.empty()) return;
  const auto taps = static_cast<std::size_t>(convolution.taps());
  if (mask.size() % taps != 0)
    refuse(
        fmt::format("convolution: a mask of {} taps of a kernel that has {}; {}, or as many for each block, "
                    "would work",
                    mask.size(), taps, taps));
  if (std::find(mask.begin(), mask.end(), true) == mask.end())
    refuse("convolution: a mask without a tap; one or more would work");
}

}  // namespace

void validate(const Convolution& convolution) {
  if (!convolution.present()) {
    if (convolution != Convolution{}) refuse("convolution: one of 0 dimensions has no geometry");
    return;
  }
  if (convolution.dimensions < 1 || convolution.dimensions > 3)
    refuse(fmt::format("convolution: {} dimensions; 1, 2 or 3 would work", convolution.dimensions));
  for (std::size_t i = 0; i < 3; ++i) {
    const auto least = [&](std::string_view what, std::int32_t value, std::int32_t bound) {
      if (value < bound)
        refuse(fmt::format("convolution: the {} is {} in its {}; {} or more would work", what, value,
                           kNames[i], bound));
    };
    least("kernel", convolution.kernel[i], 1);
    least("stride", convolution.stride[i], 1);
    least("dilation", convolution.dilation[i], 1);
    least("padding", std::min(convolution.padding_before[i], convolution.padding_after[i]), 0);
    least("input", convolution.input[i], 1);
    least("output padding", convolution.output_padding[i], 0);
    if (i + static_cast<std::size_t>(convolution.dimensions) < 3 &&
        (convolution.kernel[i] != 1 || convolution.input[i] != 1 || convolution.padding_before[i] != 0 ||
         convolution.padding_after[i] != 0 || convolution.stride[i] != 1 || convolution.dilation[i] != 1 ||
         convolution.output_padding[i] != 0))
      refuse(
          fmt::format("convolution: a {} where there are {} dimensions", kNames[i], convolution.dimensions));
    validate_output_padding(convolution, i);
    const std::int64_t padded = wide_extent(convolution, i, convolution.input[i]) + paddings(convolution, i);
    if (padded > kMostPositions) refuse(fmt::format("convolution: more than {} positions", kMostPositions));
    if (!leaves_output(convolution, i, convolution.input[i]))
      refuse_no_output(convolution, i, convolution.input[i]);
  }
  if (std::int64_t{convolution.kernel[0]} * convolution.kernel[1] > kMostTaps ||
      product(convolution.kernel) > kMostTaps)
    refuse(fmt::format("convolution: more than {} taps", kMostTaps));
  const auto few = [](const Extents& extents) {
    return std::int64_t{extents[0]} * extents[1] <= kMostPositions && product(extents) <= kMostPositions;
  };
  if (!few(convolution.input) || !few(convolution.output()))
    refuse(fmt::format("convolution: more than {} positions", kMostPositions));
  // Strides are classes of the gradient by the input, each with rows of its own; a point is numbered by 32
  // bits, and rows of points have room for what taps reach beyond them.
  std::int64_t classes = 1;
  double points = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    classes = std::min(classes * convolution.stride[i], kMostClasses + 1);
    if (i + static_cast<std::size_t>(convolution.dimensions) >= 3)
      points *= 2.0 * static_cast<double>(1 + wide_extent(convolution, i, convolution.input[i]) +
                                          paddings(convolution, i));
  }
  if (classes > kMostClasses)
    refuse(
        fmt::format("convolution: strides of more than {} together; smaller ones would work", kMostClasses));
  if (points > static_cast<double>(kMostPoints))
    refuse("convolution: too many positions, padding included; smaller images would work");
  validate_mask(convolution);
}

}  // namespace sparsekiln
