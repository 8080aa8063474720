#include "emulator/isa/memory_form.h"

namespace sparsekiln::emulator {

bool take_scope_if_any(Decoder& decoder, Scope& scope) {
  if (decoder.take("cta")) {
    scope = Scope::block;
  } else if (decoder.take("cluster")) {
    scope = Scope::cluster;
    if (decoder.compute_capability() < 90) decoder.refuse(".cluster needs sm_90");
  } else if (decoder.take("gpu")) {
    scope = Scope::device;
  } else if (decoder.take("sys")) {
    scope = Scope::system;
  } else {
    return false;
  }
  return true;
}

Scope take_scope(Decoder& decoder) {
  Scope scope = Scope::device;
  if (!take_scope_if_any(decoder, scope)) decoder.refuse("has no scope: .cta, .cluster, .gpu or .sys");
  return scope;
}

AccessSpace take_space(Decoder& decoder) {
  if (decoder.take("global")) return AccessSpace::global;
  if (decoder.take("shared") || decoder.take("shared::cta")) return AccessSpace::shared;
  if (decoder.take("shared::cluster")) {
    if (decoder.compute_capability() < 90) decoder.refuse(".shared::cluster needs sm_90");
    return AccessSpace::shared_cluster;
  }
  if (decoder.take("local")) return AccessSpace::local;
  if (decoder.take("const")) return AccessSpace::constant;
  return AccessSpace::generic;
}

void take_cache_operator(Decoder& decoder, bool store) {
  if (store)
    (void)decoder.take_one({"wb", "cg", "cs", "wt", ""});
  else
    (void)decoder.take_one({"ca", "cg", "cs", "lu", "cv", ""});
}

bool take_cache_hints(Decoder& decoder, bool store) {
  constexpr auto kNone = std::string_view();
  (void)decoder.take_one({"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
                          "L1::no_allocate", kNone});
  (void)decoder.take_one({"L2::evict_normal", "L2::evict_first", "L2::evict_last", kNone});
  const bool policy = decoder.take("L2::cache_hint");
  if (policy && decoder.compute_capability() < 80) decoder.refuse(".L2::cache_hint needs sm_80");
  if (!store) (void)decoder.take_one({"L2::64B", "L2::128B", "L2::256B", kNone});
  return policy;
}

void mark_memory(Decoder& decoder, AccessSpace space, bool strong) {
  Instruction& instruction = decoder.instruction();
  switch (space) {
    case AccessSpace::global:
      instruction.kind = Kind::memory_global;
      break;
    case AccessSpace::shared:
    case AccessSpace::shared_cluster:
      instruction.kind = Kind::memory_shared;
      break;
    case AccessSpace::local:
      instruction.kind = Kind::memory_local;
      break;
    case AccessSpace::constant:
      instruction.kind = Kind::memory_constant;
      break;
    case AccessSpace::generic:
      instruction.kind = Kind::memory_generic;
      break;
  }
  if (strong && (space == AccessSpace::global || space == AccessSpace::generic))
    instruction.traits |= kTalksToBlocks;
  if (space == AccessSpace::shared_cluster || space == AccessSpace::generic)
    instruction.traits |= kTalksToCluster;
}

}  // namespace sparsekiln::emulator
