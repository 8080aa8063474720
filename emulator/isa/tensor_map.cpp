#include "emulator/isa/tensor_map.h"

#include <bit>
#include <cstring>
#include <optional>
#include <string>

#include "emulator/isa/lanes.h"
#include "emulator/isa/memory_form.h"
#include "emulator/machine/access.h"
#include "emulator/machine/memory.h"

/// Instructions about tensor maps in memory (PTX ISA 9.7.9.15, 9.7.9.28, 9.7.13.4, 9.7.13.16), and cache
/// policies (9.7.9.18). A map is accessed as any memory is: the proxy of tensor maps is not modelled.
namespace sparsekiln::emulator {
namespace {

constexpr int kPiece = 16;  // bytes of an access; a map has eight
constexpr int kPieces = static_cast<int>(kTensorMapBytes) / kPiece;

/// The host address of the 128 bytes that a lane accesses at `address`, checked and recorded, but not
/// counted.
std::byte* reach_map(const BulkIssuer& issuer, AccessSpace space, AccessKind kind, std::uint64_t address) {
  if (address % kTensorMapAlignment != 0)
    fault(FaultKind::misaligned, issuer.warp, issuer.instruction, issuer.lane,
          "the tensor map at " + hex(address) + " is not aligned to " + std::to_string(kTensorMapAlignment) +
              " bytes");
  const CheckedAccess checked{issuer.warp,
                              issuer.instruction,
                              Mask{1} << issuer.lane,
                              {.space = space, .kind = kind, .bytes = kPiece}};
  std::byte* first = nullptr;
  for (int piece = 0; piece < kPieces; ++piece) {
    std::uint64_t addresses[kLanes] = {};
    std::byte* host[kLanes];
    addresses[issuer.lane] = address + static_cast<std::uint64_t>(piece * kPiece);
    check_space(checked, addresses, host);
    if (piece == 0) first = host[issuer.lane];
  }
  return first;
}

bool within(std::uint64_t address, std::uint64_t window) { return address - window < kWindowBytes; }

// ---- tensormap.replace ----

struct Form {
  TensorField field = TensorField::global_address;
  AccessSpace space = AccessSpace::generic;
  std::uint8_t dimension = 0;
  bool wide = false;  ///< the value has 64 bits
  std::uint8_t unused[4] = {};
};
static_assert(sizeof(Form) == sizeof(std::uint64_t));

/// Operands: the address, the value.
void replace(Warp& warp, const Instruction& instruction, Mask mask) {
  const auto form = std::bit_cast<Form>(instruction.detail);
  alignas(64) std::uint64_t addresses[kLanes];
  lane_addresses(warp, instruction.operands[0], instruction.immediate, addresses);
  each_bit(mask, [&](int lane) {
    const std::uint64_t value = form.wide ? lanes::operand<const std::uint64_t>(warp, instruction, 1)[lane]
                                          : lanes::operand<const std::uint32_t>(warp, instruction, 1)[lane];
    std::byte* const map =
        reach_map({warp, instruction, lane}, form.space, AccessKind::atomic, addresses[lane]);
    const std::string problem = replace_field(std::span<std::byte, kTensorMapBytes>(map, kTensorMapBytes),
                                              form.field, form.dimension, value);
    if (!problem.empty()) fault(FaultKind::invalid_operation, warp, instruction, lane, problem);
    memory_changed(warp);
  });
}

const TensorFieldRow& take_field(Decoder& decoder) {
  for (const TensorFieldRow& row : kTensorFields)
    if (decoder.take(row.name)) return row;
  decoder.refuse("replaces a field that is not implemented");
}

void decode_replace(Decoder& decoder) {
  decoder.need(90);
  (void)decoder.take_one({"tile"});
  const TensorFieldRow& field = take_field(decoder);
  const bool wide = field.field == TensorField::global_address || field.field == TensorField::global_stride;
  Form form{.field = field.field, .wide = wide};
  if (decoder.take("global"))
    form.space = AccessSpace::global;
  else if (decoder.take("shared::cta"))
    form.space = AccessSpace::shared;
  (void)decoder.take_one({"b1024"});
  (void)decoder.take_one({wide ? "b64" : "b32"});
  const std::size_t value = field.dimensions == 0 ? 1 : 2;
  decoder.expect_operands(value + 1, value + 1);
  if (field.dimensions != 0) {
    const std::int64_t dimension = decoder.constant(decoder.operand(1));
    if (dimension < 0 || dimension >= std::int64_t{field.dimensions})
      decoder.refuse("names a dimension that is not 0 to " + std::to_string(field.dimensions - 1));
    form.dimension = static_cast<std::uint8_t>(dimension);
  }
  if (field.field >= TensorField::elemtype) (void)decoder.constant(decoder.operand(value));
  decoder.read_address(decoder.operand(0));
  decoder.read(decoder.operand(value), wide ? ptx::Type::b64 : ptx::Type::b32);
  mark_memory(decoder, form.space, false);
  decoder.instruction().detail = std::bit_cast<std::uint64_t>(form);
  decoder.instruction().run = replace;
}

// ---- copies and fences ----

/// Operands: where to in global memory, where from in shared memory. All lanes do the same copy: the first
/// does it.
void copy_and_release(Warp& warp, const Instruction& instruction, Mask mask) {
  if (const Mask missing = warp.live & ~mask; missing != 0)
    fault_missing(warp, instruction, std::countr_zero(mask), missing);
  const auto* const offsets = static_cast<const std::uint64_t*>(instruction.table);
  const int first = std::countr_zero(mask);
  const auto address = [&](std::size_t operand, int lane) {
    return lanes::operand<const std::uint64_t>(warp, instruction, operand)[lane] + offsets[operand];
  };
  each_bit(mask, [&](int lane) {
    if (address(0, lane) != address(0, first) || address(1, lane) != address(1, first))
      fault(FaultKind::invalid_operation, warp, instruction, lane, "has other addresses than other lanes");
  });
  const BulkIssuer issuer{warp, instruction, first};
  const std::byte* const from = reach_map(issuer, AccessSpace::shared, AccessKind::read, address(1, first));
  std::byte* const to = reach_map(issuer, AccessSpace::global, AccessKind::write, address(0, first));
  std::memcpy(to, from, kTensorMapBytes);
  memory_changed(warp);
  fence(warp, instruction, mask, static_cast<Scope>(instruction.detail));
}

void decode_copy_and_release(Decoder& decoder) {
  decoder.need(90);
  decoder.take_all({"global", "shared::cta", "tensormap::generic", "release"});
  Instruction& instruction = decoder.instruction();
  instruction.detail = static_cast<std::uint64_t>(take_scope(decoder));
  decoder.take_all({"sync", "aligned"});
  decoder.expect_operands(3, 3);
  if (decoder.constant(decoder.operand(2)) != std::int64_t{kTensorMapBytes})
    decoder.refuse("copies 128 bytes, nothing else");
  std::vector<std::uint64_t> offsets;
  for (std::size_t i = 0; i < 2; ++i) {
    decoder.read_address(decoder.operand(i));
    offsets.push_back(static_cast<std::uint64_t>(instruction.immediate));
  }
  instruction.table = decoder.keep(std::move(offsets));
  decoder.finish(Kind::copy, copy_and_release);
}

void decode_tensor_map(Decoder& decoder) {
  if (decoder.take("replace"))
    decode_replace(decoder);
  else if (decoder.take("cp_fenceproxy"))
    decode_copy_and_release(decoder);
  else
    decoder.refuse("is not implemented");
}

void release_maps(Warp& warp, const Instruction& instruction, Mask mask) {
  fence(warp, instruction, mask, static_cast<Scope>(instruction.detail));
}

/// The address has to be one of global memory.
void acquire_map(Warp& warp, const Instruction& instruction, Mask mask) {
  alignas(64) std::uint64_t addresses[kLanes];
  lane_addresses(warp, instruction.operands[0], instruction.immediate, addresses);
  each_bit(mask, [&](int lane) {
    for (const std::uint64_t window : {kSharedWindow, kLocalWindow, kParamWindow})
      if (within(addresses[lane], window))
        fault(FaultKind::invalid_operation, warp, instruction, lane,
              "acquires a tensor map that is not in global memory: " + hex(addresses[lane]));
  });
  fence(warp, instruction, mask, static_cast<Scope>(instruction.detail));
}

// ---- createpolicy ----

/// All policies are the same number: hints change no result.
void make_policy(Warp& warp, const Instruction& instruction, Mask mask) {
  lanes::produce(lanes::operand<std::uint64_t>(warp, instruction, 0), mask,
                 [](int) { return std::uint64_t{1}; });
}

void take_priorities(Decoder& decoder) {
  (void)decoder.take_one({"L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"});
  (void)decoder.take_one({"L2::evict_first", "L2::evict_unchanged", ""});
}

void decode_policy(Decoder& decoder) {
  decoder.need(80);
  const std::string_view sort = decoder.take_one({"fractional", "range", "cvt"});
  decoder.instruction().run = make_policy;
  if (sort == "cvt") {
    decoder.take_all({"L2", "b64"});
    return decoder.take_operands(64, {ptx::Type::b64});
  }
  if (sort == "range") (void)decoder.take("global");
  take_priorities(decoder);
  (void)decoder.take_one({"b64"});
  const bool fractional = sort == "fractional";
  decoder.expect_operands(fractional ? 1 : 4, fractional ? 2 : 4);
  decoder.write(decoder.operand(0), 64);
  if (fractional && decoder.operands() == 2) decoder.read(decoder.operand(1), ptx::Type::f32);
  if (fractional) return;
  decoder.read_address(decoder.operand(1));
  for (const std::size_t size : {2, 3}) decoder.read(decoder.operand(size), ptx::Type::b32);
}

}  // namespace

TensorMap read_tensor_map(const BulkIssuer& issuer, std::uint64_t address) {
  const auto refuse = [&](const std::string& what) {
    fault(FaultKind::invalid_operation, issuer.warp, issuer.instruction, issuer.lane, what);
  };
  if (within(address, kSharedWindow) || within(address, kLocalWindow))
    refuse("its tensor map is not in parameters, constant or global memory: " + hex(address));
  const std::byte* const at = reach_map(issuer, AccessSpace::generic, AccessKind::read, address);
  std::string why;
  const std::optional<TensorMap> map =
      decode_tensor_map(std::span<const std::byte, kTensorMapBytes>(at, kTensorMapBytes), why);
  if (!map) refuse(why + ", at " + hex(address));
  if (map->interleave != TensorInterleave::none) refuse("interleaved tensors are not implemented");
  return *map;
}

void decode_tensor_map_fence(Decoder& decoder) {
  decoder.need(90);
  const bool acquires = decoder.take_one({"acquire", "release"}) == "acquire";
  Instruction& instruction = decoder.instruction();
  instruction.detail = static_cast<std::uint64_t>(take_scope(decoder));
  instruction.kind = Kind::fence;
  if (!acquires) {
    decoder.expect_operands(0, 0);
    instruction.run = release_maps;
    return;
  }
  decoder.expect_operands(2, 2);
  if (decoder.constant(decoder.operand(1)) != std::int64_t{kTensorMapBytes})
    decoder.refuse("is for 128 bytes, nothing else");
  decoder.read_address(decoder.operand(0));
  instruction.run = acquire_map;
}

bool decode_tensor_map_prefetch(Decoder& decoder) {
  const bool space = decoder.take("param") || decoder.take("const");
  if (!decoder.take("tensormap")) {
    if (space) decoder.refuse("of .param or .const is for .tensormap only");
    return false;
  }
  decoder.need(90);
  decoder.expect_operands(1, 1);
  decoder.ignore(decoder.operand(0));  // the name of a parameter may be its address, too
  decoder.finish(Kind::memory_generic, lanes::do_nothing);
  return true;
}

std::vector<Opcode> tensor_map_opcodes() {
  return {{"tensormap", Domain::any, decode_tensor_map}, {"createpolicy", Domain::any, decode_policy}};
}

}  // namespace sparsekiln::emulator
