#include "compiler/correlation.h"

#include <algorithm>
#include <limits>

namespace sparsekiln {
namespace {

using Extents = Convolution::Extents;

std::int32_t floor_quotient(std::int64_t a, std::int32_t b) {
  return static_cast<std::int32_t>(a >= 0 ? a / b : -((-a + b - 1) / b));
}

template <class Body>
void for_each(const Extents& extents, const Body& body) {
  for (std::int32_t d = 0; d < extents[0]; ++d)
    for (std::int32_t h = 0; h < extents[1]; ++h)
      for (std::int32_t w = 0; w < extents[2]; ++w) body(Extents{d, h, w});
}

/// Where a tap reads in one dimension, for a class.
struct Reach {
  bool reads = true;
  std::int32_t shift = 0;
  std::int32_t phase = 0;
};

Reach reach_of(const Convolution& convolution, bool one_class, std::size_t i, std::int32_t tap,
               std::int32_t residue) {
  const std::int64_t offset =
      std::int64_t{tap} * convolution.dilation[i] - convolution.padding_before[i];  // of x from y · stride
  const std::int32_t stride = convolution.stride[i];
  const std::int64_t numerator = one_class ? offset : residue - offset;
  const std::int32_t quotient = floor_quotient(numerator, stride);
  const auto rest = static_cast<std::int32_t>(numerator - std::int64_t{quotient} * stride);
  if (one_class) return {true, quotient, rest};
  return {rest == 0, quotient, 0};
}

/// Whether y has one class, and x several phases; else it is the other way round.
bool has_one_class(const Convolution& convolution, Operation operation) {
  return (operation == Operation::forward) != convolution.transposed;
}

constexpr Extents kOnes{1, 1, 1};

Extents out_step_of(const Convolution& convolution, Operation operation) {
  return has_one_class(convolution, operation) ? kOnes : convolution.stride;
}

/// Correlation::points of these positions.
Extents points_of(const Extents& output, const Extents& out_step) {
  Extents points{};
  for (std::size_t i = 0; i < 3; ++i) points[i] = (output[i] + out_step[i] - 1) / out_step[i];
  return points;
}

}  // namespace

std::int64_t lattice_points(const Convolution& convolution, Operation operation, const Extents& output) {
  const Extents points = points_of(output, out_step_of(convolution, operation));
  return std::int64_t{points[0]} * points[1] * points[2];
}

Correlation::Correlation(const Convolution& convolution, Operation operation) {
  const bool forward = operation == Operation::forward;
  const bool one_class = has_one_class(convolution, operation);
  dynamic = convolution.dynamic;
  input = forward ? convolution.input : convolution.output();
  output = forward ? convolution.output() : convolution.input;
  in_step = one_class ? convolution.stride : kOnes;
  out_step = out_step_of(convolution, operation);
  kernel_taps = convolution.taps();
  points = points_of(output, out_step);
  for_each(out_step, [&](const Extents& residue) { classes.push_back(residue); });

  // The shifts and phases of each tap and class that reads, then what they need of the lattice.
  struct Read {
    std::size_t of_class;
    std::int32_t number;
    Extents shift;
    Extents phase;
  };
  std::vector<Read> reads;
  std::vector<bool> used;  // taps
  for (std::int32_t tap = 0; tap < kernel_taps; ++tap) used.push_back(convolution.uses_tap(tap));
  Extents least_shift{0, 0, 0};
  Extents most_shift{0, 0, 0};
  for (std::size_t of_class = 0; of_class < classes.size(); ++of_class) {
    std::int32_t number = 0;
    for_each(convolution.kernel, [&](const Extents& tap) {
      Read read{of_class, number++, {}, {}};
      if (!used[static_cast<std::size_t>(read.number)]) return;
      for (std::size_t i = 0; i < 3; ++i) {
        const Reach reach = reach_of(convolution, one_class, i, tap[i], classes[of_class][i]);
        if (!reach.reads) return;
        read.shift[i] = reach.shift;
        read.phase[i] = reach.phase;
      }
      for (std::size_t i = 0; i < 3; ++i) {
        least_shift[i] = std::min(least_shift[i], read.shift[i]);
        most_shift[i] = std::max(most_shift[i], read.shift[i]);
      }
      reads.push_back(read);
    });
  }
  origin = least_shift;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int32_t held = (input[i] + in_step[i] - 1) / in_step[i];
    pitch[i] = std::max({points[i], held - least_shift[i], points[i] + most_shift[i]});
  }

  taps.resize(classes.size());
  if (!reads.empty()) {
    least = std::numeric_limits<std::int64_t>::max();
    most = std::numeric_limits<std::int64_t>::min();
  }
  for (const Read& read : reads) {
    auto phase = std::find(phases.begin(), phases.end(), read.phase);
    if (phase == phases.end()) phase = phases.insert(phases.end(), read.phase);
    const std::int64_t displacement =
        (std::int64_t{read.shift[0]} * pitch[1] + read.shift[1]) * pitch[2] + read.shift[2];
    taps[read.of_class].push_back(
        {read.number, static_cast<std::int32_t>(phase - phases.begin()), displacement});
    least = std::min(least, displacement);
    most = std::max(most, displacement);
  }
}

}  // namespace sparsekiln
