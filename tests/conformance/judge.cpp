#include "tests/conformance/judge.h"

#include <algorithm>

#include <fmt/format.h>

namespace sparsekiln::conformance {
namespace {

constexpr std::size_t kMostShown = 8;

using Expectations = std::vector<std::vector<Expected>>;

std::string inputs_of(const Case& test, std::size_t row) {
  std::string text;
  for (std::size_t c = 0; c < test.in.size(); ++c)
    text +=
        fmt::format("{}{} {}", c == 0 ? " of " : ", ", test.in[c].name, show(test.in[c], test.given[row][c]));
  return text;
}

/// Where any thread may have any of the values, both sides are brought into one order.
void sort_unordered(const Case& test, Expectations& expected, Answer& answer) {
  for (std::size_t c = 0; c < test.out.size(); ++c) {
    if (!test.out[c].unordered) continue;
    std::vector<Expected> wanted;
    std::vector<std::uint64_t> got;
    for (const auto& row : expected) wanted.push_back(row[c]);
    for (const auto& row : answer) got.push_back(row[c]);
    std::sort(wanted.begin(), wanted.end(),
              [](const Expected& a, const Expected& b) { return a.bits < b.bits; });
    std::sort(got.begin(), got.end());
    for (std::size_t i = 0; i < got.size(); ++i) {
      expected[i][c] = wanted[i];
      answer[i][c] = got[i];
    }
  }
}

std::string judge(const Case& test, Expectations expected, Answer answer) {
  sort_unordered(test, expected, answer);
  std::string text;
  std::size_t count = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (std::size_t c = 0; c < test.out.size(); ++c) {
      const std::string wrong = compare(test.out[c], expected[i][c], answer[i][c]);
      if (wrong.empty()) continue;
      if (count++ < kMostShown) text += fmt::format("\n  thread {}: {}{}", i, wrong, inputs_of(test, i));
    }
  }
  return count == 0 ? "" : fmt::format("{} values differ (case of line {}):{}", count, test.line, text);
}

}  // namespace

std::string differences(const Case& test, const Answer& answer) { return judge(test, test.expected, answer); }

std::string differences(const Case& test, const Answer& answer, const Answer& golden) {
  Case between = test;
  for (Column& column : between.out) column.tolerance.most *= 2;  // either may be off by the tolerance
  Expectations& expected = between.expected;
  for (std::size_t i = 0; i < expected.size(); ++i)
    for (std::size_t c = 0; c < expected[i].size(); ++c)
      if (expected[i][c].sort == Expected::Sort::value) expected[i][c].bits = golden[i][c];
  return differences(between, answer);
}

}  // namespace sparsekiln::conformance
