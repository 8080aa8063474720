#pragma once

#include "emulator/machine/warp.h"
#include "emulator/program/decoder.h"

/// What the modifiers of memory instructions say (PTX ISA 9.7.9, and 8.2 to 8.5 for order and scope).
namespace sparsekiln::emulator {

/// `.cta`, `.cluster`, `.gpu` or `.sys`; refuses anything else.
[[nodiscard]] Scope take_scope(Decoder& decoder);
/// Whether a scope is the next modifier; then it is read into `scope`.
[[nodiscard]] bool take_scope_if_any(Decoder& decoder, Scope& scope);

/// `.global`, `.shared`, `.shared::cta`, `.local`, `.const`, or nothing: generic. Parameters are the
/// caller's.
[[nodiscard]] AccessSpace take_space(Decoder& decoder);

/// How caches are used, which changes no result: `.ca` `.cg` …
void take_cache_operator(Decoder& decoder, bool store);
/// Hints on single caches, `.L1::…` and `.L2::…`, which change no result either. Each may occur once. Whether
/// one is `.L2::cache_hint`: then a cache policy is the last operand.
[[nodiscard]] bool take_cache_hints(Decoder& decoder, bool store);

/// Says that an instruction is one of memory: its kind, and whether other blocks may notice it.
void mark_memory(Decoder& decoder, AccessSpace space, bool strong);

}  // namespace sparsekiln::emulator
