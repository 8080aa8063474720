#pragma once

#include <cstdint>
#include <string_view>

#include <sparsekiln/binary.h>

#include "runtime/operand_region.h"

namespace sparsekiln {

/// Checks an activation of a convolution whose features come first: images [features, positions], contiguous,
/// at any distance. `inputs`: its positions are those of the layer's inputs. Throws as check_operands does.
[[nodiscard]] Activation2D check_planes(std::string_view name, const TensorView& view, std::int64_t features,
                                        bool inputs, const OperandContract& contract);

}  // namespace sparsekiln
