#pragma once

#include <cstdint>

#include "emulator/machine/bulk_copy.h"
#include "emulator/program/decoder.h"

namespace sparsekiln::emulator {

/// The tensor map at a generic address, in parameters, constant or global memory (PTX ISA 5.5.8). Throws
/// Fault where there is none, or one that is not valid.
[[nodiscard]] TensorMap read_tensor_map(const BulkIssuer& issuer, std::uint64_t address);

/// fence.proxy.tensormap::generic, after `.tensormap::generic` was read. isa/barrier.cpp owns the opcode.
void decode_tensor_map_fence(Decoder& decoder);
/// prefetch{.space}.tensormap, if `.tensormap` comes next. isa/load_store.cpp owns the opcode.
[[nodiscard]] bool decode_tensor_map_prefetch(Decoder& decoder);

}  // namespace sparsekiln::emulator
