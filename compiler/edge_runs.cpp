#include "compiler/edge_runs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln {
namespace {

constexpr std::int64_t kMost = 4096;  ///< runs of all dimensions, multiplied

void refuse_dynamic(const Convolution& convolution) {
  if (convolution.dynamic)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("edge situations of '{}': they follow from the extents of the input; one input, "
                            "without up-to, or a bias, would work",
                            to_string(convolution)));
}

[[noreturn]] void refuse_many() {
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("an edge bias of a convolution whose outputs may meet its padding in more than {} ways; a "
                  "smaller kernel, or a bias, would work",
                  kMost));
}

/// The least whole number that is not less than a / b, b > 0.
std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return a > 0 ? (a - 1) / b + 1 : -(-a / b); }

/// One dimension of a convolution.
struct Line {
  Line(const Convolution& convolution, std::size_t i)
      : kernel(convolution.kernel[i]),
        stride(convolution.stride[i]),
        dilation(convolution.dilation[i]),
        padding(convolution.padding_before[i]),
        input(convolution.input[i]),
        output(convolution.output()[i]),
        transposed(convolution.transposed) {}

  std::int64_t kernel, stride, dilation, padding, input, output;
  bool transposed;

  [[nodiscard]] bool outside(std::int64_t tap, std::int64_t position) const {
    if (!transposed) {
      const std::int64_t at = position * stride + tap * dilation - padding;
      return at < 0 || at >= input;
    }
    const std::int64_t reached = position + padding - tap * dilation;
    return reached % stride == 0 && (reached < 0 || reached >= input * stride);
  }
  /// Positions of y at which the answer may differ from that of the position before, and 0.
  [[nodiscard]] std::set<std::int64_t> changes() const {
    std::set<std::int64_t> found{0};
    const auto add = [&](std::int64_t position) {
      if (position > 0 && position < output) found.insert(position);
      if (std::ssize(found) > kMost) refuse_many();
    };
    if (!transposed) {
      for (std::int64_t tap = 0; tap < kernel; ++tap)
        for (const std::int64_t end : {std::int64_t{0}, input})
          add(quotient_up(end + padding - tap * dilation, stride));
      return found;
    }
    if (stride == 1) {
      for (std::int64_t tap = 0; tap < kernel; ++tap)
        for (const std::int64_t end : {std::int64_t{0}, input}) add(end + tap * dilation - padding);
      return found;
    }
    // Any position before `first` may have a tap in front of x, and any from `last` on one after it.
    const std::int64_t first = std::min((kernel - 1) * dilation - padding, output);
    const std::int64_t last = std::max<std::int64_t>(input * stride - padding, 0);
    for (std::int64_t position = 1; position <= first; ++position) add(position);
    for (std::int64_t position = last; position < output; ++position) add(position);
    return found;
  }
};

/// A run of one dimension: where it begins, and its taps of this dimension that are outside.
struct Run {
  std::int32_t begin;
  std::vector<bool> outside;
};

std::vector<Run> runs_of(const Line& line) {
  std::vector<Run> runs;
  for (const std::int64_t position : line.changes()) {
    std::vector<bool> outside;
    for (std::int64_t tap = 0; tap < line.kernel; ++tap) outside.push_back(line.outside(tap, position));
    if (runs.empty() || runs.back().outside != outside)
      runs.push_back({static_cast<std::int32_t>(position), std::move(outside)});
  }
  return runs;
}

}  // namespace

EdgeRuns edge_runs(const Convolution& convolution) {
  refuse_dynamic(convolution);
  std::array<std::vector<Run>, 3> runs;
  EdgeRuns result;
  std::int64_t together = 1;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i] = runs_of(Line(convolution, i));
    together *= std::ssize(runs[i]);
    if (together > kMost) refuse_many();
    for (std::size_t run = 1; run < runs[i].size(); ++run) result.begins[i].push_back(runs[i][run].begin);
  }
  const auto& [depth, height, width] = convolution.kernel;
  std::vector<bool> used;
  for (std::int32_t tap = 0; tap < convolution.taps(); ++tap) used.push_back(convolution.uses_tap(tap));
  // In this order of runs, situations come in the order of the first positions that have them.
  std::map<std::vector<bool>, std::int32_t> numbers;
  for (const Run& d : runs[0])
    for (const Run& h : runs[1])
      for (const Run& w : runs[2]) {
        std::vector<bool> outside;
        for (std::int32_t tap = 0; tap < convolution.taps(); ++tap) {
          const bool is_outside = d.outside[static_cast<std::size_t>(tap / (height * width))] ||
                                  h.outside[static_cast<std::size_t>(tap / width % height)] ||
                                  w.outside[static_cast<std::size_t>(tap % width)];
          outside.push_back(is_outside && used[static_cast<std::size_t>(tap)]);
        }
        const auto number = static_cast<std::int32_t>(numbers.size());
        result.situations.push_back(numbers.try_emplace(std::move(outside), number).first->second);
      }
  result.count = static_cast<std::int32_t>(numbers.size());
  return result;
}

std::int32_t count_edge_situations(const Computation& what) {
  return what.epilogue.edge_bias ? edge_runs(what.convolution).count : 0;
}

EdgeRuns checked_edge_runs(const Convolution& convolution) {
  if (!convolution.present())
    throw Error(ErrorKind::invalid_argument,
                "edge situations are a convolution's; kernel=3x3 padding=1 input=32x32 would work");
  validate(convolution);
  return edge_runs(convolution);
}

void write_edge_situations(const Convolution& convolution, const EdgeRuns& runs, std::int32_t* of_position) {
  const Convolution::Extents output = convolution.output();
  std::array<std::vector<std::int32_t>, 3> run_of;
  for (std::size_t i = 0; i < run_of.size(); ++i)
    for (std::int32_t position = 0, run = 0; position < output[i]; ++position) {
      while (run + 1 < runs.runs(i) && runs.begins[i][static_cast<std::size_t>(run)] <= position) ++run;
      run_of[i].push_back(run);
    }
  for (const std::int32_t d : run_of[0])
    for (const std::int32_t h : run_of[1])
      for (const std::int32_t w : run_of[2])
        *of_position++ = runs.situations[static_cast<std::size_t>((d * runs.runs(1) + h) * runs.runs(2) + w)];
}

EdgeSituations edge_situations(const Convolution& convolution) {
  const EdgeRuns runs = checked_edge_runs(convolution);
  EdgeSituations situations{runs.count, {}};
  situations.of_position.resize(static_cast<std::size_t>(convolution.output_positions()));
  write_edge_situations(convolution, runs, situations.of_position.data());
  return situations;
}

}  // namespace sparsekiln
