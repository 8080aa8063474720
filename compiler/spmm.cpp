#include "compiler/spmm.h"

#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/element.h"

namespace sparsekiln {
namespace {

bool transposes(Operation operation) {
  if (operation == Operation::grad_weight)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} is no product with a sparse matrix: forward and {} are", name(operation),
                            name(Operation::grad_input)));
  return operation == Operation::grad_input;
}

/// A layout that is written row by row.
class Rows {
 public:
  void add(std::int64_t column) { col_.push_back(static_cast<std::int32_t>(column)); }
  void end_row() { crow_.push_back(static_cast<std::int32_t>(col_.size())); }
  [[nodiscard]] Layout layout(std::int64_t cols) const {
    return Layout::from_csr(static_cast<std::int64_t>(crow_.size()) - 1, cols, crow_, col_);
  }

 private:
  std::vector<std::int32_t> crow_{0};
  std::vector<std::int32_t> col_;
};

/// W's numbers of the taps of each block, [block][tap]; -1: it does not have that tap.
std::vector<std::int32_t> numbers_of(const Convolution& convolution, std::int64_t blocks) {
  std::vector<std::int32_t> numbers;
  std::int32_t next = 0;
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int32_t tap = 0; tap < convolution.taps(); ++tap)
      numbers.push_back(convolution.has_tap(block, tap) ? next++ : -1);
  return numbers;
}

/// By columns: for each class and block of y's features, the blocks of x's with the taps of the class.
Layout by_classes(const Layout& weight, const Convolution& convolution, const Correlation& correlation,
                  std::vector<std::int32_t>& numbers) {
  const Layout turned = weight.transposed();
  const auto block_of = weight.block_of();
  const std::int64_t kernel_taps = correlation.kernel_taps;
  const std::vector<std::int32_t> all = numbers_of(convolution, weight.blocks());
  Rows rows;
  for (const auto& taps : correlation.taps)
    for (std::int32_t row = 0; row < turned.rows(); ++row) {
      for (auto b = static_cast<std::size_t>(turned.crow()[static_cast<std::size_t>(row)]);
           b < static_cast<std::size_t>(turned.crow()[static_cast<std::size_t>(row) + 1]); ++b)
        for (const Correlation::Tap& tap : taps) {
          const std::int32_t number = all[static_cast<std::size_t>(block_of[b] * kernel_taps + tap.number)];
          if (number < 0) continue;
          rows.add(turned.col()[b] * kernel_taps + tap.number);
          numbers.push_back(number);
        }
      rows.end_row();
    }
  return rows.layout(turned.cols() * kernel_taps);
}

}  // namespace

Layout with_taps(const Layout& features, const Convolution& convolution) {
  const std::int32_t taps = convolution.taps();
  Rows rows;
  for (std::int32_t row = 0; row < features.rows(); ++row) {
    for (std::int32_t b = features.crow()[static_cast<std::size_t>(row)];
         b < features.crow()[static_cast<std::size_t>(row) + 1]; ++b)
      for (std::int32_t tap = 0; tap < taps; ++tap)
        if (convolution.has_tap(b, tap))
          rows.add(std::int64_t{features.col()[static_cast<std::size_t>(b)]} * taps + tap);
    rows.end_row();
  }
  return rows.layout(std::int64_t{features.cols()} * taps);
}

double cell_bytes(const Computation& what) {
  const Epilogue& ends = what.epilogue;
  const bool forward = what.operation == Operation::forward;
  const auto element = static_cast<double>(size_of(what.out_dtype));
  const auto state = static_cast<double>(size_of(what.sum_type()));
  const double groups = what.normalised_groups();
  double bytes = 0;
  if (ends.lstm) bytes += forward ? 2 * state / groups : 4 * state;
  if (ends.layer_norm) {
    bytes += element * (forward ? 1 : groups);                                         // sums
    if (ends.multiply) bytes += element * (forward ? 1 / groups : ends.lstm ? 1 : 2);  // and its gradient
    if (ends.add) bytes += element * (forward ? 1 : 2);
  } else if (ends.lstm) {
    bytes += element * 4 * (forward && ends.keep ? 2 : 1);
  }
  return bytes;
}

Layout of_all_gates(const Layout& layout, const Computation& what) {
  if (what.gates_of_cell() == 1) return layout;
  Rows rows;
  for (std::int32_t gate = 0; gate < what.gates_of_cell(); ++gate)
    for (std::int32_t row = 0; row < layout.rows(); ++row) {
      for (const std::int32_t column : layout.row(row)) rows.add(column);
      rows.end_row();
    }
  return rows.layout(layout.cols());
}

Spmm::Spmm(const Problem& problem)
    : Computation(problem),
      weight(of_all_gates(problem.layout, problem)),
      layout(transposes(operation) && !convolution.present() ? weight.transposed() : problem.layout),
      cut_in(problem.cut_in_features),
      cut_out(problem.cut_out_features),
      result_dtype(problem.out_dtype) {
  if (epilogue.layer_norm) {
    const bool gradient = operation == Operation::grad_input;
    normalisation = std::exchange(epilogue, {.residual = gradient && problem.epilogue.residual});
    if (gradient) out_dtype = sum_type();
  }
  if (convolution.present()) {
    correlation = std::make_shared<const Correlation>(convolution, operation);
    const Layout features = weight;
    weight = with_taps(features, convolution);
    layout = by_columns() ? by_classes(features, convolution, *correlation, numbers) : weight;
  }
  if (block_scales) block_scale_map = BlockScales(convolution, weight.blocks());
  if (by_columns()) std::swap(block.out, block.in);
  if (operation == Operation::grad_input) std::swap(cut_in, cut_out);
}

std::int64_t Spmm::images_of_tile(std::int32_t tile_n) const {
  const bool one_by_one = feature_major() || element(dtype).cpu == CpuPasses::plain;
  return one_by_one ? 1 : correlation->images_of_tile(tile_n);
}

}  // namespace sparsekiln
