#pragma once

#include <cstdint>
#include <string_view>

#include <sparsekiln/binary.h>

#include "runtime/operand_region.h"

namespace sparsekiln {

/// The extents of the images of a launch: of the layer's inputs, and of its outputs.
struct ImageExtents {
  Convolution::Extents inputs{};
  Convolution::Extents outputs{};
};
/// The extents of the convolution; where it is dynamic, those that its inputs have. `inputs`: x or dx, called
/// `name`. Throws as check_operands does.
[[nodiscard]] ImageExtents image_extents(std::string_view name, const TensorView& inputs,
                                         const OperandContract& contract);

/// Checks an activation of a convolution whose images have these extents and features: images or their rows,
/// channels-last, all positions at one distance; channels-first, images [features, positions], contiguous, at
/// any distance. Throws as check_operands does.
[[nodiscard]] Activation2D check_images(std::string_view name, const TensorView& view,
                                        const Convolution::Extents& extents, std::int64_t features,
                                        const OperandContract& contract);

}  // namespace sparsekiln
