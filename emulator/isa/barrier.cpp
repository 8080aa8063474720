#include <cstdint>
#include <string>

#include "emulator/isa/lanes.h"
#include "emulator/isa/memory_form.h"
#include "emulator/isa/tensor_map.h"
#include "emulator/machine/cluster.h"

/// bar, barrier, bar.warp.sync, fence, membar, griddepcontrol, nanosleep (PTX ISA 9.7.13, 9.7.19).
namespace sparsekiln::emulator {
namespace {

/// Flags in Instruction::detail, above the kind of barrier.
enum : std::uint64_t { kKindBits = 0xff, kAligned = 0x100, kHasThreads = 0x200, kHasResult = 0x400 };

/// The one value that all lanes of `mask` hold.
std::uint32_t uniform(const Warp& warp, const Instruction& instruction, Mask mask, std::size_t index,
                      const char* what) {
  const auto* const row = lanes::operand<const std::uint32_t>(warp, instruction, index);
  const std::uint32_t value = row[std::countr_zero(mask)];
  each_bit(mask, [&](int lane) {
    if (row[lane] != value)
      fault(FaultKind::invalid_operation, warp, instruction, lane,
            std::string("lanes of a warp name different ") + what);
  });
  return value;
}

void need_whole_warp(const Warp& warp, const Instruction& instruction, Mask mask) {
  if (mask != warp.live)
    fault(FaultKind::barrier_not_reached, warp, instruction, std::countr_zero(mask),
          "only some of the warp's lanes reach the barrier together");
}

/// Operands: the result where there is one, the barrier, the threads where they are given, and the predicate.
void synchronize_block(Warp& warp, const Instruction& instruction, Mask mask) {
  if (mask != warp.live)
    fault((instruction.detail & kAligned) != 0 ? FaultKind::barrier_not_reached
                                               : FaultKind::divergence_not_supported,
          warp, instruction, std::countr_zero(mask),
          "only some of the warp's lanes reach the barrier together");
  const auto kind = static_cast<BarrierKind>(instruction.detail & kKindBits);
  const bool reduces = (instruction.detail & kHasResult) != 0;
  std::size_t next = reduces ? 1 : 0;
  const std::uint32_t id = uniform(warp, instruction, mask, next++, "barriers");
  std::uint32_t threads = 0;
  if ((instruction.detail & kHasThreads) != 0) {
    threads = uniform(warp, instruction, mask, next++, "numbers of threads");
    if (threads == 0 || threads % kLanes != 0)
      fault(FaultKind::invalid_operation, warp, instruction, std::countr_zero(mask),
            "a barrier of " + std::to_string(threads) + " threads: it is a multiple of 32, at least 32");
  }
  if (id > 15)
    fault(FaultKind::invalid_operation, warp, instruction, std::countr_zero(mask),
          "barrier " + std::to_string(id) + ": they are numbered from 0 to 15");
  if (!reduces) {
    barrier(warp, instruction, mask, kind, id, threads);
    return;
  }
  const Mask predicate = warp.predicate(instruction.operands[next]);
  barrier(warp, instruction, mask, kind, id, threads, predicate & mask, instruction.operands[0]);
}

void synchronize_warp(Warp& warp, const Instruction& instruction, Mask mask) {
  const auto* const members = lanes::operand<const std::uint32_t>(warp, instruction, 0);
  each_bit(mask, [&](int lane) {
    if ((members[lane] >> lane & 1) == 0)
      fault(FaultKind::invalid_operation, warp, instruction, lane, "the lane is not in its own member mask");
    if (const Mask missing = members[lane] & ~mask & warp.live; missing != 0)
      fault_missing(warp, instruction, lane, missing);
  });
  for (Mask left = mask; left != 0;) {
    const Mask group = members[std::countr_zero(left)] & mask;
    warp_barrier(warp, instruction, mask, group);
    left &= ~group;
  }
}

template <Scope scope>
void order_memory(Warp& warp, const Instruction& instruction, Mask mask) {
  fence(warp, instruction, mask, scope);
}

Handler fence_of(Scope scope) {
  switch (scope) {
    case Scope::block:
      return order_memory<Scope::block>;
    case Scope::cluster:
      return order_memory<Scope::cluster>;
    case Scope::device:
      return order_memory<Scope::device>;
    case Scope::system:
      return order_memory<Scope::system>;
  }
  return nullptr;
}

void decode_warp_barrier(Decoder& decoder) {
  (void)decoder.take_one({"sync"});
  decoder.expect_operands(1, 1);
  decoder.read(decoder.operand(0), ptx::Type::b32);
  decoder.finish(Kind::barrier, synchronize_warp);
}

/// `bar.red.popc.u32 d, a{, b}, {!}c` and `bar.red.and.pred p, a{, b}, {!}c`.
BarrierKind decode_reduction(Decoder& decoder, std::size_t operands) {
  const std::string_view operation = decoder.take_one({"popc", "and", "or"});
  const bool aligned = decoder.take("aligned");
  const bool counts = operation == "popc";
  if (decoder.take_type() != (counts ? ptx::Type::u32 : ptx::Type::pred)) decoder.refuse("has another type");
  decoder.write(decoder.operand(0), counts ? 32 : 1);
  for (std::size_t i = 1; i + 1 < operands; ++i) decoder.read(decoder.operand(i), ptx::Type::u32);
  decoder.read(decoder.operand(operands - 1), ptx::Type::pred);
  Instruction& instruction = decoder.instruction();
  instruction.detail |= kHasResult;
  if (aligned) instruction.detail |= kAligned;
  if (operands == 4) instruction.detail |= kHasThreads;
  return counts               ? BarrierKind::reduce_popc
         : operation == "and" ? BarrierKind::reduce_and
                              : BarrierKind::reduce_or;
}

template <bool Releases, bool Aligned>
void arrive_at_cluster(Warp& warp, const Instruction& instruction, Mask mask) {
  if (Aligned) need_whole_warp(warp, instruction, mask);
  cluster_arrive(warp, instruction, mask, Releases);
}

template <bool Aligned>
void wait_for_cluster(Warp& warp, const Instruction& instruction, Mask mask) {
  if (Aligned) need_whole_warp(warp, instruction, mask);
  cluster_wait(warp, instruction, mask);
}

/// barrier.cluster (9.7.13.4).
void decode_cluster_barrier(Decoder& decoder) {
  decoder.need(90);
  const bool arrives = decoder.take_one({"arrive", "wait"}) == "arrive";
  const bool relaxed =
      arrives ? decoder.take_one({"release", "relaxed", ""}) == "relaxed" : decoder.take("acquire") && false;
  const bool aligned = decoder.take("aligned");
  decoder.expect_operands(0, 0);
  Instruction& instruction = decoder.instruction();
  instruction.kind = Kind::barrier;
  instruction.traits |= kTalksToCluster;
  if (!arrives)
    instruction.run = aligned ? wait_for_cluster<true> : wait_for_cluster<false>;
  else if (relaxed)
    instruction.run = aligned ? arrive_at_cluster<false, true> : arrive_at_cluster<false, false>;
  else
    instruction.run = aligned ? arrive_at_cluster<true, true> : arrive_at_cluster<true, false>;
}

/// `bar` is `barrier` with `.aligned`.
template <bool AlwaysAligned>
void decode_barrier(Decoder& decoder) {
  if (AlwaysAligned && decoder.take("warp")) {
    decode_warp_barrier(decoder);
    return;
  }
  (void)decoder.take("cta");
  if (!AlwaysAligned && decoder.take("cluster")) return decode_cluster_barrier(decoder);
  const std::string_view what = decoder.take_one({"sync", "arrive", "red"});
  decoder.finish(Kind::barrier, synchronize_block);
  Instruction& instruction = decoder.instruction();
  if (AlwaysAligned) instruction.detail |= kAligned;
  const std::size_t operands = decoder.operands();
  BarrierKind kind = BarrierKind::sync;
  if (what == "red") {
    decoder.expect_operands(3, 4);
    kind = decode_reduction(decoder, operands);
  } else {
    if (!AlwaysAligned && decoder.take("aligned")) instruction.detail |= kAligned;
    const bool arrives = what == "arrive";
    decoder.expect_operands(arrives ? 2 : 1, 2);
    for (std::size_t i = 0; i < operands; ++i) decoder.read(decoder.operand(i), ptx::Type::u32);
    if (operands == 2) instruction.detail |= kHasThreads;
    if (arrives) kind = BarrierKind::arrive;
  }
  const bool whole_block = operands == (what == "red" ? 3u : 1u);
  if (!whole_block) instruction.traits |= kSyncsPartOfBlock;
  instruction.detail |= static_cast<std::uint64_t>(kind);
}

void order_proxies(Warp& warp, const Instruction&, Mask mask) { fence_proxy(warp, mask); }

/// `fence.proxy.async` orders the generic and the async proxy, which is more than its spaces say where it
/// names one. `.alias` orders what has several addresses, which nothing has here.
void decode_proxy_fence(Decoder& decoder) {
  if (decoder.take("tensormap::generic")) return decode_tensor_map_fence(decoder);
  const bool async = decoder.take_one({"async", "alias"}) == "async";
  decoder.need(async ? 90 : 70);
  if (async) (void)decoder.take_one({"global", "shared::cta", "shared::cluster", ""});
  decoder.expect_operands(0, 0);
  decoder.finish(Kind::fence, async ? order_proxies : lanes::do_nothing);
}

/// `fence.mbarrier_init.release.cluster`: of the mbarriers that the thread has initialized.
void decode_init_fence(Decoder& decoder) {
  decoder.take_all({"release", "cluster"});
  decoder.expect_operands(0, 0);
  decoder.finish(Kind::fence, fence_of(Scope::cluster));
}

void decode_fence(Decoder& decoder) {
  if (decoder.take("proxy")) return decode_proxy_fence(decoder);
  if (decoder.take("mbarrier_init")) return decode_init_fence(decoder);
  (void)decoder.take_one({"sc", "acq_rel", "acquire", "release", ""});
  decoder.finish(Kind::fence, fence_of(take_scope(decoder)));
  decoder.expect_operands(0, 0);
}

void decode_membar(Decoder& decoder) {
  const std::string_view level = decoder.take_one({"cta", "gl", "sys"});
  decoder.finish(Kind::fence, fence_of(level == "cta"  ? Scope::block
                                       : level == "gl" ? Scope::device
                                                       : Scope::system));
  decoder.expect_operands(0, 0);
}

void wait_for_grids(Warp& warp, const Instruction&, Mask mask) { wait_for_launches(warp, mask); }
void launch_dependents(Warp& warp, const Instruction&, Mask mask) { let_dependents_begin(warp, mask); }

void decode_grid_dependency(Decoder& decoder) {
  decoder.need(90);
  const bool waits = decoder.take_one({"wait", "launch_dependents"}) == "wait";
  decoder.finish(Kind::barrier, waits ? wait_for_grids : launch_dependents);
  decoder.expect_operands(0, 0);
}

/// How long a thread sleeps is left open: not at all will do.
void decode_nanosleep(Decoder& decoder) {
  if (decoder.take_type() != ptx::Type::u32) decoder.refuse("has another type than .u32");
  decoder.expect_operands(1, 1);
  decoder.read(decoder.operand(0), ptx::Type::u32);
  decoder.instruction().run = lanes::do_nothing;
}

}  // namespace

std::vector<Opcode> barrier_opcodes() {
  return {{"bar", Domain::any, decode_barrier<true>}, {"barrier", Domain::any, decode_barrier<false>},
          {"fence", Domain::any, decode_fence},       {"griddepcontrol", Domain::any, decode_grid_dependency},
          {"membar", Domain::any, decode_membar},     {"nanosleep", Domain::any, decode_nanosleep}};
}

}  // namespace sparsekiln::emulator
