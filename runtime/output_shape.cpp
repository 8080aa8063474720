#include "runtime/output_shape.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "runtime/operand_refusal.h"

namespace sparsekiln {
namespace {

using Shape = std::vector<std::int64_t>;
using First = std::span<const std::int64_t>;

Shape shape_of_matrix(const OperandRow& output, const OperandContract& contract, First first) {
  if (first.size() != 2 && first.size() != 3)
    refuse(is_forward(contract) ? "x" : "dy",
           fmt::format("it has {} dimensions; 2 or 3 are taken", first.size()));
  const std::int64_t features = count(output.features, contract);
  const std::int64_t n = first[first.size() - (contract.feature_major() ? 1 : 2)];
  Shape shape(first.begin(), first.end() - 2);
  shape.push_back(contract.feature_major() ? features : n);
  shape.push_back(contract.feature_major() ? n : features);
  return shape;
}

/// The convolution of the inputs that were given, where it takes several; none: it does not take those.
std::optional<Convolution> of_images(const OperandContract& contract, First first) {
  if (!is_forward(contract))
    refuse(
        "dx",
        "this kernel takes images of several sizes, and those of dx do not follow from dy; dx= would work");
  const Convolution& convolution = contract.convolution;
  const auto dimensions = static_cast<std::size_t>(convolution.dimensions);
  Convolution::Extents extents{1, 1, 1};
  for (std::size_t i = 0; i < dimensions && first.size() == dimensions + 2; ++i) {
    const std::size_t place = 3 - dimensions + i;
    const std::int64_t most = std::int64_t{convolution.input[place]} + 1;  // which it does not take
    extents[place] = static_cast<std::int32_t>(std::min(first[(contract.feature_major() ? 2 : 1) + i], most));
  }
  if (!convolution.takes(extents)) return std::nullopt;
  return convolution.at(extents);
}

Shape shape_of_images(const OperandRow& output, const OperandContract& contract, First first) {
  const std::optional<Convolution> fixed =
      contract.convolution.dynamic ? of_images(contract, first) : contract.convolution;
  if (!fixed) return {0};  // the launch says what is wrong with what was given
  const bool forward = is_forward(contract);
  const bool channels_first = contract.feature_major();
  const std::int64_t features = count(output.features, contract);
  const std::int64_t from = forward ? fixed->input_positions() : fixed->output_positions();
  const std::int64_t to = forward ? fixed->output_positions() : fixed->input_positions();
  if (first.size() == 2 && !channels_first) return {first[0] / from * to, features};
  Shape shape{first.empty() ? 0 : first[0]};
  if (channels_first) shape.push_back(features);
  const Convolution::Extents extents = forward ? fixed->output() : fixed->input;
  if (channels_first && first.size() == 3)
    shape.push_back(to);
  else
    shape.insert(shape.end(), extents.end() - fixed->dimensions, extents.end());
  if (!channels_first) shape.push_back(features);
  return shape;
}

Shape shape_of_weight(const OperandContract& contract) {
  const std::int64_t taps = contract.convolution.present() ? contract.convolution.taps_of_block() : 0;
  if (taps == 0) return {contract.blocks, contract.block.out, contract.block.in};
  return {contract.blocks / taps, taps, contract.block.out, contract.block.in};
}

}  // namespace

Shape output_shape(const OperandRow& output, const OperandContract& contract, First first) {
  if (!output.taken(contract) || !output.computed(contract))
    refuse(output.name, fmt::format("a kernel of {} does not compute it", name(contract.operation)));
  switch (output.form) {
    case OperandForm::activation:
      return contract.convolution.present() ? shape_of_images(output, contract, first)
                                            : shape_of_matrix(output, contract, first);
    case OperandForm::weight:
      return shape_of_weight(contract);
    case OperandForm::dense: {
      const DenseExtents dense = extents_of(output.per, contract);
      if (dense.any_rows) refuse(output.name, "its rows do not follow from other operands");
      return {dense.extents.begin(), dense.extents.begin() + dense.rank};
    }
  }
  throw Error(ErrorKind::internal, "an operand of no form");
}

}  // namespace sparsekiln
