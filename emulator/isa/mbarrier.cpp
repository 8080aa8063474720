#include "emulator/machine/mbarrier.h"

#include <bit>
#include <cstdint>

#include "emulator/isa/lanes.h"
#include "emulator/isa/memory_form.h"
#include "emulator/machine/async_proxy.h"

/// mbarrier (PTX ISA 9.7.13.15) and cp.async.mbarrier.arrive. Lanes act one after the other.
namespace sparsekiln::emulator {
namespace {

/// What a handler needs to know, packed into Instruction::detail.
struct Form {
  AccessSpace space = AccessSpace::generic;
  bool orders = true;        ///< releases or acquires: not .relaxed
  bool expects = false;      ///< .expect_tx of an arrival
  bool drops = false;        ///< arrive_drop
  bool completes = true;     ///< not .noComplete
  bool by_parity = false;    ///< .parity
  bool may_suspend = false;  ///< try_wait
  bool has_count = false;    ///< of arrivals
};
static_assert(sizeof(Form) == sizeof(std::uint64_t));

Form form_of(const Instruction& instruction) { return std::bit_cast<Form>(instruction.detail); }

/// The mbarriers that the lanes of a warp name, in the last operand, checked as accesses.
struct Places {
  MbarrierPlace at[kLanes];

  Places(Warp& warp, const Instruction& instruction, Mask mask, const Form& form, AccessKind kind,
         std::size_t address_operand) {
    alignas(64) std::uint64_t addresses[kLanes];
    std::byte* host[kLanes];
    lane_addresses(warp, instruction.operands[address_operand], instruction.immediate, addresses);
    access(warp, instruction, mask,
           {.space = form.space,
            .kind = kind,
            .bytes = 8,
            .strong = kind != AccessKind::write,
            .scope = Scope::cluster},
           addresses, host);
    each_bit(mask, [&](int lane) {
      const SharedPlace place =
          shared_place(warp, instruction, lane, static_cast<std::uint32_t>(addresses[lane]));
      at[lane] = {place.block, place.offset};
    });
  }
};

void initialize(Warp& warp, const Instruction& instruction, Mask mask) {
  const Places places(warp, instruction, mask, form_of(instruction), AccessKind::write, 1);
  const auto* const counts = lanes::operand<const std::uint32_t>(warp, instruction, 0);
  each_bit(mask, [&](int lane) { mbarrier_init(warp, instruction, lane, places.at[lane], counts[lane]); });
}

void invalidate(Warp& warp, const Instruction& instruction, Mask mask) {
  const Places places(warp, instruction, mask, form_of(instruction), AccessKind::write, 0);
  each_bit(mask, [&](int lane) { mbarrier_invalidate(warp, instruction, lane, places.at[lane]); });
}

template <auto Change>
void change_transactions(Warp& warp, const Instruction& instruction, Mask mask) {
  const Places places(warp, instruction, mask, form_of(instruction), AccessKind::atomic, 1);
  const auto* const bytes = lanes::operand<const std::uint32_t>(warp, instruction, 0);
  each_bit(mask, [&](int lane) { Change(warp, instruction, lane, places.at[lane], bytes[lane]); });
}

/// Operands: the state, a number of arrivals or of bytes where there is one, the address.
void arrive(Warp& warp, const Instruction& instruction, Mask mask) {
  const Form form = form_of(instruction);
  const bool has_number = form.expects || form.has_count;
  const Places places(warp, instruction, mask, form, AccessKind::atomic, has_number ? 2 : 1);
  auto* const states = lanes::operand<std::uint64_t>(warp, instruction, 0);
  each_bit(mask, [&](int lane) {
    const std::uint32_t number =
        has_number ? lanes::operand<const std::uint32_t>(warp, instruction, 1)[lane] : 1;
    if (form.expects) mbarrier_expect(warp, instruction, lane, places.at[lane], number);
    states[lane] = mbarrier_arrive(warp, instruction, lane, places.at[lane],
                                   {.count = form.expects ? 1 : number,
                                    .releases = form.orders,
                                    .drops = form.drops,
                                    .completes = form.completes});
  });
}

/// Operands: the predicate, the state or parity, the address. A try_wait that finds nothing complete gives up
/// at once, or suspends the warp, as the seed says: how long it waits is left open.
void wait(Warp& warp, const Instruction& instruction, Mask mask) {
  const Form form = form_of(instruction);
  const Places places(warp, instruction, mask, form, AccessKind::read, 2);
  Mask complete = 0;
  each_bit(mask, [&](int lane) {
    const bool done =
        form.by_parity ? mbarrier_test_parity(warp, instruction, lane, places.at[lane],
                                              lanes::operand<const std::uint32_t>(warp, instruction, 1)[lane],
                                              form.orders)
                       : mbarrier_test_state(warp, instruction, lane, places.at[lane],
                                             lanes::operand<const std::uint64_t>(warp, instruction, 1)[lane],
                                             form.orders);
    complete |= done ? 1u << lane : 0;
  });
  constexpr std::uint32_t kGivesUp = 4;  // one time of so many
  if (complete == 0 && form.may_suspend && draw(warp) % kGivesUp != 0) {
    each_bit(mask, [&](int lane) { mbarrier_suspend(warp, instruction, lane, places.at[lane]); });
    return;
  }
  lanes::write_predicate(warp, instruction.operands[0], complete, mask);
}

void count_pending(Warp& warp, const Instruction& instruction, Mask mask) {
  const auto* const states = lanes::operand<const std::uint64_t>(warp, instruction, 1);
  lanes::produce_each(lanes::operand<std::uint32_t>(warp, instruction, 0), mask,
                      [&](int lane) { return pending_of_state(states[lane]); });
}

/// The arrival of copies: they are completed before it, which they may be at any time.
template <bool Increments>
void arrive_after_copies(Warp& warp, const Instruction& instruction, Mask mask) {
  wait_all_copies(warp, mask);
  const Places places(warp, instruction, mask, form_of(instruction), AccessKind::atomic, 0);
  each_bit(mask, [&](int lane) {
    if constexpr (Increments) mbarrier_await_one_more(warp, instruction, lane, places.at[lane]);
    (void)mbarrier_arrive(warp, instruction, lane, places.at[lane], {});
  });
}

// ---- decoding ----

/// Modifiers up to the type, which ptxas takes in several orders.
Form take_form(Decoder& decoder, bool arrives, bool waits) {
  Form form;
  Scope scope = Scope::block;
  while (true) {
    if (arrives && decoder.take("expect_tx"))
      form.expects = true;
    else if (arrives && decoder.take("noComplete"))
      form.completes = false;
    else if (waits && decoder.take("parity"))
      form.by_parity = true;
    else if (decoder.take("relaxed"))
      form.orders = false;
    else if (decoder.take("shared::cluster"))
      form.space = AccessSpace::shared_cluster;
    else if (decoder.take("shared") || decoder.take("shared::cta"))
      form.space = AccessSpace::shared;
    else if (!decoder.take(waits ? "acquire" : "release") && !take_scope_if_any(decoder, scope))
      break;
  }
  (void)decoder.take_one({"b64"});
  return form;
}

/// The address comes last among the operands that are read.
void finish(Decoder& decoder, const Form& form, Handler handler, std::size_t address) {
  decoder.read_address(decoder.operand(address));
  decoder.finish(Kind::barrier, handler, std::bit_cast<std::uint64_t>(form));
  decoder.instruction().traits |= kSyncsPartOfBlock;
  if (form.space != AccessSpace::shared) decoder.instruction().traits |= kTalksToCluster;
}

void decode_arrive(Decoder& decoder, bool drops) {
  Form form = take_form(decoder, true, false);
  form.drops = drops;
  decoder.expect_operands(form.expects ? 3 : 2, 3);
  form.has_count = decoder.operands() == 3 && !form.expects;
  decoder.write(decoder.operand(0), 64);
  if (decoder.operands() == 3) decoder.read(decoder.operand(2), ptx::Type::u32);
  finish(decoder, form, arrive, 1);
}

void decode_wait(Decoder& decoder, bool may_suspend) {
  Form form = take_form(decoder, false, true);
  form.may_suspend = may_suspend;
  decoder.expect_operands(3, may_suspend ? 4 : 3);
  decoder.write(decoder.operand(0), 1);
  decoder.read(decoder.operand(2), form.by_parity ? ptx::Type::u32 : ptx::Type::b64);
  finish(decoder, form, wait, 1);
  if (decoder.operands() == 4) decoder.ignore(decoder.operand(3));  // a hint how long to wait
}

void decode_mbarrier(Decoder& decoder) {
  decoder.need(80);
  const std::string_view what = decoder.take_one({"init", "inval", "expect_tx", "complete_tx", "arrive",
                                                  "arrive_drop", "test_wait", "try_wait", "pending_count"});
  const bool needs_90 = what == "expect_tx" || what == "complete_tx" || what == "try_wait";
  if (needs_90) decoder.need(90);
  if (what == "arrive" || what == "arrive_drop") return decode_arrive(decoder, what == "arrive_drop");
  if (what == "test_wait" || what == "try_wait") return decode_wait(decoder, what == "try_wait");
  if (what == "pending_count") {
    (void)decoder.take_one({"b64"});
    decoder.take_operands(32, {ptx::Type::b64});
    return decoder.finish(Kind::barrier, count_pending);
  }
  const Form form = take_form(decoder, false, false);
  const bool has_number = what != "inval";
  decoder.expect_operands(has_number ? 2 : 1, has_number ? 2 : 1);
  if (has_number) decoder.read(decoder.operand(1), ptx::Type::u32);
  finish(decoder, form,
         what == "init"        ? initialize
         : what == "inval"     ? invalidate
         : what == "expect_tx" ? change_transactions<mbarrier_expect>
                               : change_transactions<mbarrier_complete>,
         0);
}

}  // namespace

void decode_copies_arrival(Decoder& decoder) {
  (void)decoder.take_one({"arrive"});
  const bool increments = !decoder.take("noinc");
  const Form form = take_form(decoder, false, false);
  decoder.expect_operands(1, 1);
  finish(decoder, form, increments ? arrive_after_copies<true> : arrive_after_copies<false>, 0);
}

std::vector<Opcode> mbarrier_opcodes() { return {{"mbarrier", Domain::any, decode_mbarrier}}; }

}  // namespace sparsekiln::emulator
