#pragma once

#include "emulator/program/decoder.h"

namespace sparsekiln::emulator {

/// cp.async.bulk… and cp.reduce.async.bulk…, after `.bulk` was read. isa/async_copy.cpp owns the opcode.
void decode_bulk(Decoder& decoder, bool reduces);

}  // namespace sparsekiln::emulator
