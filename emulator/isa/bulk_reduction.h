#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "emulator/machine/bulk_copy.h"
#include "emulator/machine/tensor_map.h"

namespace sparsekiln::emulator {

enum class ReduceOperation : std::uint8_t { add, min, max, inc, dec, bit_and, bit_or, bit_xor };
[[nodiscard]] std::optional<ReduceOperation> parse_reduce_operation(std::string_view name);

/// What a bulk reduction to global memory does with elements of a type (PTX ISA 9.7.9.25.4.2; bits are
/// unsigned numbers); null where there is no such one.
[[nodiscard]] const Reduction* reduction_of(ReduceOperation operation, TensorElement element);

}  // namespace sparsekiln::emulator
