#include <bit>
#include <cstdint>
#include <cstring>

#include "emulator/isa/combination.h"
#include "emulator/isa/lanes.h"
#include "emulator/isa/types.h"
#include "emulator/program/decoder.h"

/// Instructions in which lanes of a warp exchange values (PTX ISA 9.7.9.6, 9.7.13: shfl, vote, match, redux,
/// activemask, elect).
///
/// Their .sync forms wait for all lanes of a mask that have not ended. This emulator runs a warp in lockstep,
/// so those lanes must execute the instruction together; lanes may come in several groups, each with its own
/// mask.
namespace sparsekiln::emulator {
namespace {

using ptx::Type;

/// Calls use(group) for each group of lanes of `mask` that give the same member mask (row `members`). Faults
/// if a lane is not in its own group, or a member that has not ended does not execute the instruction.
template <class Use>
void each_group(Warp& warp, const Instruction& instruction, Mask mask, const std::uint32_t* members,
                Use use) {
  Mask left = mask;
  while (left != 0) {
    const int first = std::countr_zero(left);
    const Mask group = members[first];
    const Mask here = left & lanes::collect([=](int lane) { return members[lane] == group; });
    if ((here & ~group) != 0)
      fault(FaultKind::invalid_operation, warp, instruction, std::countr_zero(here & ~group),
            "the lane is not in its own member mask");
    const Mask missing = group & warp.live & ~here;
    if (missing != 0) fault_missing(warp, instruction, first, missing);
    use(here);
    left &= ~here;
  }
}

// ---- shfl ----

enum class Shuffle { up, down, bfly, idx };

struct Source {
  int lane;
  bool in_range;
};

/// The lane that `lane` reads, or itself where that is out of range (9.7.9.6, as the code there computes it).
template <Shuffle Mode>
Source source_of(int lane, std::uint32_t b, std::uint32_t c) {
  const int amount = static_cast<int>(b & 31);
  const int clamp = static_cast<int>(c & 31);
  const int segment = static_cast<int>(c >> 8 & 31);
  const int first = lane & segment;
  const int last = first | (clamp & ~segment);
  int from = lane;
  bool in_range = false;
  switch (Mode) {
    case Shuffle::up:
      from = lane - amount;
      in_range = from >= last;
      break;
    case Shuffle::down:
      from = lane + amount;
      in_range = from <= last;
      break;
    case Shuffle::bfly:
      from = lane ^ amount;
      in_range = from <= last;
      break;
    case Shuffle::idx:
      from = first | (amount & ~segment);
      in_range = from <= last;
      break;
  }
  return {in_range ? from : lane, in_range};
}

/// Operands: d, where `Both` p, then a, b, c and the members.
template <Shuffle Mode, bool Both>
void shuffle(Warp& warp, const Instruction& instruction, Mask mask) {
  constexpr std::size_t kFirst = Both ? 2 : 1;
  const auto* b = lanes::operand<const std::uint32_t>(warp, instruction, kFirst + 1);
  const auto* c = lanes::operand<const std::uint32_t>(warp, instruction, kFirst + 2);
  const auto* members = lanes::operand<const std::uint32_t>(warp, instruction, kFirst + 3);
  alignas(64) std::uint32_t a[kLanes];
  alignas(64) std::uint32_t result[kLanes];
  std::memcpy(a, lanes::operand<const std::uint32_t>(warp, instruction, kFirst), sizeof a);
  Mask in_range = 0;
  each_group(warp, instruction, mask, members, [&](Mask group) {
    Mask outside = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      const Source source = source_of<Mode>(lane, b[lane], c[lane]);
      result[lane] = a[source.lane & 31];
      in_range |= source.in_range ? Mask{1} << lane & group : 0;
      outside |= (group >> (source.lane & 31) & 1) == 0 ? Mask{1} << lane : 0;
    }
    outside &= group;
    if (outside != 0)
      fault(FaultKind::invalid_operation, warp, instruction, std::countr_zero(outside),
            "reads from a lane that does not execute the instruction with it");
    lanes::blend(lanes::operand<std::uint32_t>(warp, instruction, 0), result, group);
  });
  if (Both) lanes::write_predicate(warp, instruction.operands[1], in_range, mask);
}

template <bool Both>
Handler shuffle_handler(std::string_view mode) {
  if (mode == "up") return shuffle<Shuffle::up, Both>;
  if (mode == "down") return shuffle<Shuffle::down, Both>;
  if (mode == "bfly") return shuffle<Shuffle::bfly, Both>;
  return shuffle<Shuffle::idx, Both>;
}

/// d or d|p. Whether there is a p.
bool write_with_predicate(Decoder& decoder) {
  const ptx::Operand& result = decoder.operand(0);
  if (result.kind != ptx::Operand::Kind::pair) {
    decoder.write(result, 32);
    return false;
  }
  if (result.elements.size() != 2) decoder.refuse("has no result d|p");
  decoder.write(result.elements[0], 32);
  decoder.write(result.elements[1], 1);
  return true;
}

void shfl(Decoder& decoder) {
  if (!decoder.take("sync")) decoder.refuse("without .sync is not implemented");
  const std::string_view mode = decoder.take_one({"up", "down", "bfly", "idx"});
  decoder.take_one({"b32"});
  decoder.expect_operands(5, 5);
  const bool both = write_with_predicate(decoder);
  for (std::size_t i = 1; i < 5; ++i) decoder.read(decoder.operand(i), Type::b32);
  decoder.finish(Kind::warp, both ? shuffle_handler<true>(mode) : shuffle_handler<false>(mode));
}

// ---- vote ----

enum class Vote { all, any, uni };

template <Vote V>
void vote_on(Warp& warp, const Instruction& instruction, Mask mask) {
  const Mask votes = warp.predicate(instruction.operands[1]);
  const auto* members = lanes::operand<const std::uint32_t>(warp, instruction, 2);
  Mask result = 0;
  each_group(warp, instruction, mask, members, [&](Mask group) {
    const bool all = (votes & group) == group;
    const bool any = (votes & group) != 0;
    const bool answer = V == Vote::all ? all : V == Vote::any ? any : all || !any;
    if (answer) result |= group;
  });
  lanes::write_predicate(warp, instruction.operands[0], result, mask);
}

void ballot(Warp& warp, const Instruction& instruction, Mask mask) {
  const Mask votes = warp.predicate(instruction.operands[1]);
  const auto* members = lanes::operand<const std::uint32_t>(warp, instruction, 2);
  auto* to = lanes::operand<std::uint32_t>(warp, instruction, 0);
  alignas(64) std::uint32_t result[kLanes];
  each_group(warp, instruction, mask, members,
             [&](Mask group) { each_bit(group, [&](int lane) { result[lane] = votes & group; }); });
  lanes::produce_each(to, mask, [&](int lane) { return result[lane]; });
}

void vote(Decoder& decoder) {
  if (!decoder.take("sync")) decoder.refuse("without .sync is not implemented");
  const std::string_view mode = decoder.take_one({"all", "any", "uni", "ballot"});
  const bool balloting = mode == "ballot";
  decoder.take_one({balloting ? "b32" : "pred"});
  decoder.take_operands(balloting ? 32 : 1, {Type::pred, Type::b32});
  Handler run = ballot;
  if (mode == "all") run = vote_on<Vote::all>;
  if (mode == "any") run = vote_on<Vote::any>;
  if (mode == "uni") run = vote_on<Vote::uni>;
  decoder.finish(Kind::warp, run);
}

// ---- match ----

template <class T>
Mask equal_lanes(const T* values, int lane, Mask group) {
  const T value = values[lane];
  return group & lanes::collect([=](int other) { return values[other] == value; });
}

template <class T>
void match_any(Warp& warp, const Instruction& instruction, Mask mask) {
  const T* values = lanes::operand<const T>(warp, instruction, 1);
  const auto* members = lanes::operand<const std::uint32_t>(warp, instruction, 2);
  alignas(64) std::uint32_t result[kLanes];
  each_group(warp, instruction, mask, members, [&](Mask group) {
    each_bit(group, [&](int lane) { result[lane] = equal_lanes(values, lane, group); });
  });
  lanes::produce_each(lanes::operand<std::uint32_t>(warp, instruction, 0), mask,
                      [&](int lane) { return result[lane]; });
}

template <class T, bool Both>
void match_all(Warp& warp, const Instruction& instruction, Mask mask) {
  constexpr std::size_t kFirst = Both ? 2 : 1;
  const T* values = lanes::operand<const T>(warp, instruction, kFirst);
  const auto* members = lanes::operand<const std::uint32_t>(warp, instruction, kFirst + 1);
  alignas(64) std::uint32_t result[kLanes];
  Mask same = 0;
  each_group(warp, instruction, mask, members, [&](Mask group) {
    const bool all = equal_lanes(values, std::countr_zero(group), group) == group;
    if (all) same |= group;
    each_bit(group, [&](int lane) { result[lane] = all ? group : 0; });
  });
  lanes::produce_each(lanes::operand<std::uint32_t>(warp, instruction, 0), mask,
                      [&](int lane) { return result[lane]; });
  if (Both) lanes::write_predicate(warp, instruction.operands[1], same, mask);
}

template <class T>
Handler match_handler(bool all, bool both) {
  if (!all) return match_any<T>;
  return both ? match_all<T, true> : match_all<T, false>;
}

void match(Decoder& decoder) {
  const bool all = decoder.take_one({"any", "all"}) == "all";
  decoder.take_one({"sync"});
  const bool wide = decoder.take_one({"b32", "b64"}) == "b64";
  decoder.expect_operands(3, 3);
  const bool both = write_with_predicate(decoder);
  if (both && !all) decoder.refuse(".any has no predicate as a result");
  decoder.read(decoder.operand(1), wide ? Type::b64 : Type::b32);
  decoder.read(decoder.operand(2), Type::b32);
  decoder.finish(Kind::warp,
                 wide ? match_handler<std::uint64_t>(all, both) : match_handler<std::uint32_t>(all, both));
}

// ---- redux ----

template <class T, T (*F)(T, T)>
void reduce(Warp& warp, const Instruction& instruction, Mask mask) {
  const T* values = lanes::operand<const T>(warp, instruction, 1);
  const auto* members = lanes::operand<const std::uint32_t>(warp, instruction, 2);
  alignas(64) T result[kLanes];
  each_group(warp, instruction, mask, members, [&](Mask group) {
    T sum = values[std::countr_zero(group)];
    each_bit(group & (group - 1), [&](int lane) { sum = F(sum, values[lane]); });
    each_bit(group, [&](int lane) { result[lane] = sum; });
  });
  lanes::produce_each(lanes::operand<T>(warp, instruction, 0), mask, [&](int lane) { return result[lane]; });
}

template <class T>
Handler extreme_of(bool least) {
  return least ? reduce<T, combination::least<T>> : reduce<T, combination::greatest<T>>;
}

Handler reduction(std::string_view operation, bool is_signed) {
  using Word = std::uint32_t;
  if (operation == "add") return reduce<Word, combination::add<Word>>;
  if (operation == "and") return reduce<Word, combination::bit_and<Word>>;
  if (operation == "or") return reduce<Word, combination::bit_or<Word>>;
  if (operation == "xor") return reduce<Word, combination::bit_xor<Word>>;
  return is_signed ? extreme_of<std::int32_t>(operation == "min") : extreme_of<Word>(operation == "min");
}

void redux(Decoder& decoder) {
  decoder.need(80);
  decoder.take_one({"sync"});
  const std::string_view operation = decoder.take_one({"add", "min", "max", "and", "or", "xor"});
  const bool arithmetic = operation == "add" || operation == "min" || operation == "max";
  const std::string_view type = arithmetic ? decoder.take_one({"u32", "s32"}) : decoder.take_one({"b32"});
  decoder.take_operands(32, {Type::b32, Type::b32});
  decoder.finish(Kind::warp, reduction(operation, type == "s32"));
}

// ---- activemask, elect ----

void active_mask(Warp& warp, const Instruction& instruction, Mask mask) {
  lanes::produce(lanes::operand<std::uint32_t>(warp, instruction, 0), mask,
                 [mask](int) { return std::uint32_t{mask}; });
}

void activemask(Decoder& decoder) {
  decoder.take_one({"b32"});
  decoder.take_operands(32, {});
  decoder.finish(Kind::warp, active_mask);
}

/// Any lane may lead, always the same for a member mask (9.7.13.9); here it is the first.
void elect_first(Warp& warp, const Instruction& instruction, Mask mask) {
  const auto* members = lanes::operand<const std::uint32_t>(warp, instruction, 2);
  auto* to = lanes::operand<std::uint32_t>(warp, instruction, 0);
  alignas(64) std::uint32_t result[kLanes];
  Mask leaders = 0;
  each_group(warp, instruction, mask, members, [&](Mask group) {
    const int leader = std::countr_zero(group);
    leaders |= Mask{1} << leader;
    each_bit(group, [&](int lane) { result[lane] = static_cast<std::uint32_t>(leader); });
  });
  lanes::produce_each(to, mask, [&](int lane) { return result[lane]; });
  lanes::write_predicate(warp, instruction.operands[1], leaders, mask);
}

void elect(Decoder& decoder) {
  decoder.need(90);
  decoder.take_one({"sync"});
  decoder.expect_operands(2, 2);
  if (!write_with_predicate(decoder)) decoder.refuse("has no result d|p");
  decoder.read(decoder.operand(1), Type::b32);
  decoder.finish(Kind::warp, elect_first);
}

}  // namespace

std::vector<Opcode> warp_opcodes() {
  return {
      {"shfl", Domain::any, shfl},
      {"vote", Domain::any, vote},
      {"match", Domain::any, match},
      {"redux", Domain::any, redux},
      {"activemask", Domain::any, activemask},
      {"elect", Domain::any, elect},
  };
}

}  // namespace sparsekiln::emulator
