#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "emulator/isa/bulk_reduction.h"
#include "emulator/isa/lanes.h"
#include "emulator/isa/tensor_map.h"
#include "emulator/machine/block.h"
#include "emulator/machine/bulk_copy.h"
#include "emulator/machine/cluster.h"

/// Bulk and tensor copies (PTX ISA 9.7.9.25.4, 9.7.9.27). Cache hints and policies change no result.
namespace sparsekiln::emulator {
namespace {

constexpr std::uint32_t kUnit = 16;  // what addresses and sizes are multiples of
constexpr std::uint32_t kTensorAlignment =
    128;  // of a box in shared memory (CUDA C++ Programming Guide, TMA)

// ---- what a handler knows ----

/// Packed into Instruction::detail.
struct Form {
  std::uint8_t dimensions = 0;  ///< 0: no tensor
  bool own_block = false;       ///< the destination is .shared::cta
  bool multicast = false;
  bool reduces = false;
  bool prefetch = false;  ///< has no address in shared memory
  ReduceOperation operation = ReduceOperation::add;
  std::uint8_t unused[2] = {};
};
static_assert(sizeof(Form) == sizeof(std::uint64_t));

/// Instruction::table: offsets of addresses, and for plain reductions which one.
enum Kept : std::uint8_t { kSharedOffset, kOtherOffset, kBarrierOffset, kReduction, kKept };

/// Operand rows: the address in shared memory (that of the own block, where both are), the other address or
/// that of the map, then the coordinates or the size, the mbarrier, the mask of a multicast. A prefetch has
/// no first one.
struct Operands {
  const Warp& warp;
  const Instruction& instruction;
  Form form = std::bit_cast<Form>(instruction.detail);

  [[nodiscard]] std::uint64_t kept(Kept what) const {
    return static_cast<const std::uint64_t*>(instruction.table)[what];
  }
  [[nodiscard]] std::uint64_t address(std::size_t row, Kept offset, int lane) const {
    return lanes::operand<const std::uint64_t>(warp, instruction, row)[lane] + kept(offset);
  }
  [[nodiscard]] std::uint32_t word(std::size_t row, int lane) const {
    return lanes::operand<const std::uint32_t>(warp, instruction, row)[lane];
  }
  [[nodiscard]] std::uint32_t shared(int lane) const {
    return static_cast<std::uint32_t>(address(0, kSharedOffset, lane));
  }
  [[nodiscard]] std::size_t other_row() const { return form.prefetch ? 0 : 1; }
  [[nodiscard]] std::uint64_t other(int lane) const { return address(other_row(), kOtherOffset, lane); }
  [[nodiscard]] std::uint32_t size(int lane) const { return word(other_row() + 1, lane); }
  [[nodiscard]] std::size_t barrier_row() const { return form.dimensions == 0 ? 3 : 2u + form.dimensions; }
  [[nodiscard]] std::uint32_t barrier(int lane) const {
    return static_cast<std::uint32_t>(address(barrier_row(), kBarrierOffset, lane));
  }
  [[nodiscard]] std::uint32_t cta_mask(int lane) const {
    return lanes::operand<const std::uint16_t>(warp, instruction, barrier_row() + 1)[lane];
  }
  [[nodiscard]] TensorCoordinates coordinates(int lane) const {
    TensorCoordinates result{};
    for (std::size_t d = 0; d < form.dimensions; ++d)
      result[d] = static_cast<std::int32_t>(word(other_row() + 1 + d, lane));
    return result;
  }
};

[[noreturn]] void refuse(const BulkIssuer& issuer, FaultKind kind, const std::string& what) {
  fault(kind, issuer.warp, issuer.instruction, issuer.lane, what);
}

void check_alignment(const BulkIssuer& issuer, std::uint64_t address, std::uint32_t unit, const char* what) {
  if (address % unit != 0)
    refuse(issuer, FaultKind::misaligned,
           std::string(what) + " " + hex(address) + " is no multiple of " + std::to_string(unit));
}

std::uint32_t checked_size(const BulkIssuer& issuer, std::uint32_t bytes) {
  if (bytes % kUnit != 0)
    refuse(issuer, FaultKind::invalid_operation,
           "copies " + std::to_string(bytes) + " bytes, no multiple of 16");
  return bytes;
}

// ---- where data go ----

SharedPlace place_of(const BulkIssuer& issuer, std::uint32_t address) {
  return shared_place(issuer.warp, issuer.instruction, issuer.lane, address);
}

/// Offset of an address that has to be in shared memory of the own block.
std::uint32_t own_offset(const BulkIssuer& issuer, std::uint32_t address, const char* what) {
  const SharedPlace place = place_of(issuer, address);
  if (place.block != issuer.warp.block)
    refuse(issuer, FaultKind::invalid_operation,
           std::string(what) + " " + hex(address) + " is not in shared memory of its own block");
  return place.offset;
}

/// A destination in shared memory and its mbarrier, which lie in the same block.
BulkTarget target_of(const BulkIssuer& issuer, std::uint32_t address, std::uint32_t barrier) {
  const SharedPlace data = place_of(issuer, address);
  const SharedPlace signal = place_of(issuer, barrier);
  if (data.block != signal.block)
    refuse(issuer, FaultKind::invalid_operation,
           "copies to shared memory of one block and signals an mbarrier of another");
  return {.block = data.block, .offset = data.offset, .barrier = signal.offset};
}

/// The same place in every block of the mask.
std::vector<BulkTarget> multicast_targets(const BulkIssuer& issuer, const BulkTarget& first,
                                          std::uint32_t mask) {
  std::vector<BulkTarget> targets;
  for (std::uint32_t left = mask; left != 0; left &= left - 1) {
    const auto rank = static_cast<std::uint32_t>(std::countr_zero(left));
    Block* const block = block_of_rank(issuer.warp, rank);
    if (block == nullptr)
      refuse(issuer, FaultKind::invalid_operation,
             "copies to block " + std::to_string(rank) + " of the cluster, which it does not have");
    targets.push_back({.block = block, .offset = first.offset, .barrier = first.barrier});
  }
  if (targets.empty()) refuse(issuer, FaultKind::invalid_operation, "copies to no block of the cluster");
  return targets;
}

// ---- handlers ----

/// The box that a lane's tensor map and coordinates name.
BulkBox box_of(const BulkIssuer& issuer, const Operands& operands, bool loads) {
  const TensorMap map = read_tensor_map(issuer, operands.other(issuer.lane));
  if (map.rank != operands.form.dimensions)
    refuse(issuer, FaultKind::invalid_operation,
           "its tensor map has " + std::to_string(map.rank) + " dimensions");
  if (map.swizzle != Swizzle::none && map.box[0] * bytes_of(map.element) != span_of(map.swizzle))
    refuse(issuer, FaultKind::invalid_operation,
           "a box whose rows are shorter than the swizzle is not implemented");
  const TensorCoordinates first = operands.coordinates(issuer.lane);
  if ((std::int64_t{first[0]} * bytes_of(map.element)) % kUnit != 0)  // an H100 says: illegal instruction
    refuse(issuer, FaultKind::invalid_operation,
           "its box begins at coordinate " + std::to_string(first[0]) +
               " of dimension 0, no multiple of 16 bytes");
  if (!loads) {
    for (std::uint32_t d = 0; d < map.rank; ++d)
      if (first[d] < 0)  // 9.7.9.27.1.1
        refuse(issuer, FaultKind::invalid_operation,
               "writes a box that begins at coordinate " + std::to_string(first[d]));
    if (converts(map.element) || map.element == TensorElement::f32_ftz)
      refuse(issuer, FaultKind::invalid_operation,
             "what a write does with elements of TFLOAT32 or FTZ types is not implemented");
  }
  return tensor_box(map, first);
}

/// The box of any copy between global and shared memory, with addresses checked.
BulkBox checked_box(const BulkIssuer& issuer, const Operands& operands, bool loads) {
  const int lane = issuer.lane;
  if (operands.form.dimensions != 0) {
    check_alignment(issuer, operands.shared(lane), kTensorAlignment, "the address in shared memory");
    return box_of(issuer, operands, loads);
  }
  check_alignment(issuer, operands.shared(lane), kUnit, "the address in shared memory");
  check_alignment(issuer, operands.other(lane), kUnit, "the address in global memory");
  return plain_box(operands.other(lane), checked_size(issuer, operands.size(lane)));
}

void load(Warp& warp, const Instruction& instruction, Mask mask) {
  const Operands operands{warp, instruction};
  each_bit(mask, [&](int lane) {
    const BulkIssuer issuer{warp, instruction, lane};
    BulkBox box = checked_box(issuer, operands, true);
    if (operands.form.own_block) (void)own_offset(issuer, operands.shared(lane), "the destination");
    const BulkTarget target = target_of(issuer, operands.shared(lane), operands.barrier(lane));
    if (operands.form.multicast)
      load_bulk(issuer, std::move(box), multicast_targets(issuer, target, operands.cta_mask(lane)));
    else
      load_bulk(issuer, std::move(box), std::array{target});
  });
}

const Reduction* kept_reduction(const Operands& operands) {
  return operands.form.reduces ? std::bit_cast<const Reduction*>(operands.kept(kReduction)) : nullptr;
}

/// What a store does with the elements of its box.
const Reduction* reduction_for(const BulkIssuer& issuer, const Operands& operands, const BulkBox& box) {
  if (!operands.form.reduces || operands.form.dimensions == 0) return kept_reduction(operands);
  const Reduction* const found =
      box.element == TensorElement::f64 ? nullptr : reduction_of(operands.form.operation, box.element);
  if (found == nullptr)
    refuse(issuer, FaultKind::invalid_operation,
           "its tensor map has elements of a type that this reduction is not for");
  return found;
}

/// Whether two lanes store the same to the same place. Kernels let a whole warp do so: once or 32 times is
/// one.
bool same_store(const Operands& operands, int a, int b) {
  const Form& form = operands.form;
  if (form.reduces || operands.shared(a) != operands.shared(b) || operands.other(a) != operands.other(b))
    return false;
  return form.dimensions == 0 ? operands.size(a) == operands.size(b)
                              : operands.coordinates(a) == operands.coordinates(b);
}

void store(Warp& warp, const Instruction& instruction, Mask mask) {
  const Operands operands{warp, instruction};
  const int first = std::countr_zero(mask);
  each_bit(mask, [&](int lane) {
    if (lane != first && same_store(operands, lane, first)) return;
    const BulkIssuer issuer{warp, instruction, lane};
    BulkBox box = checked_box(issuer, operands, false);
    const Reduction* const reduction = reduction_for(issuer, operands, box);
    store_bulk(issuer, std::move(box), own_offset(issuer, operands.shared(lane), "the source"), reduction);
  });
}

/// From one block to another: the other address is the destination.
void send_to_peer(Warp& warp, const Instruction& instruction, Mask mask) {
  const Operands operands{warp, instruction};
  each_bit(mask, [&](int lane) {
    const BulkIssuer issuer{warp, instruction, lane};
    const auto to = static_cast<std::uint32_t>(operands.other(lane));
    check_alignment(issuer, operands.shared(lane), kUnit, "the source");
    check_alignment(issuer, to, kUnit, "the destination");
    const BulkTarget target = target_of(issuer, to, operands.barrier(lane));
    // Copies alone have to be to another block (9.7.9.25.4.1).
    if (!operands.form.reduces && target.block == warp.block)
      refuse(issuer, FaultKind::invalid_operation, "copies within shared memory of its own block");
    send_bulk(issuer, own_offset(issuer, operands.shared(lane), "the source"),
              checked_size(issuer, operands.size(lane)), target, kept_reduction(operands));
  });
}

/// A prefetch changes nothing, but its operands have to be as those of a copy.
void prefetch(Warp& warp, const Instruction& instruction, Mask mask) {
  const Operands operands{warp, instruction};
  each_bit(mask, [&](int lane) {
    const BulkIssuer issuer{warp, instruction, lane};
    if (operands.form.dimensions != 0) {
      (void)box_of(issuer, operands, true);
      return;
    }
    check_alignment(issuer, operands.other(lane), kUnit, "the address in global memory");
    (void)checked_size(issuer, operands.size(lane));
  });
}

void commit(Warp& warp, const Instruction&, Mask mask) { commit_bulk(warp, mask); }
template <bool ReadsOnly>
void wait(Warp& warp, const Instruction& instruction, Mask mask) {
  wait_bulk(warp, mask, static_cast<std::uint32_t>(instruction.immediate), ReadsOnly);
}

// ---- decoding ----

/// Everything that modifiers say. ptxas takes them in any order, apart from the two state spaces.
struct Modifiers {
  std::vector<std::string_view> spaces;
  std::uint8_t dimensions = 0;
  bool tensor = false;
  bool prefetch = false;
  bool level2 = false;  ///< .L2 of a prefetch
  bool tile = false;
  bool mbarrier = false;
  bool group = false;
  bool multicast = false;
  bool hint = false;
  bool noftz = false;
  std::optional<ReduceOperation> operation;
  std::optional<ptx::Type> type;
};

class ModifierReader {
 public:
  explicit ModifierReader(Decoder& decoder) : decoder_(decoder) {}

  Modifiers read(bool reduces) {
    while (decoder_.more_modifiers() && (read_flag() || read_space() || (reduces && read_reduction()))) {
    }
    return read_;
  }

 private:
  bool read_flag() {
    return flag("tensor", read_.tensor) || flag("prefetch", read_.prefetch) || flag("L2", read_.level2) ||
           flag("tile", read_.tile) || flag("mbarrier::complete_tx::bytes", read_.mbarrier) ||
           flag("bulk_group", read_.group) || flag("multicast::cluster", read_.multicast) ||
           flag("L2::cache_hint", read_.hint) || flag("noftz", read_.noftz) || read_dimensions();
  }
  bool flag(std::string_view name, bool& is) {
    if (!decoder_.take(name)) return false;
    if (is) decoder_.refuse("has ." + std::string(name) + " twice");
    return is = true;
  }
  bool read_dimensions() {
    constexpr std::string_view kNames[] = {"1d", "2d", "3d", "4d", "5d"};
    for (std::uint8_t d = 0; d < kMostDimensions; ++d)
      if (read_.dimensions == 0 && decoder_.take(kNames[d])) {
        read_.dimensions = static_cast<std::uint8_t>(d + 1);
        return true;
      }
    return false;
  }
  bool read_space() {
    for (const std::string_view name : {"shared::cta", "shared::cluster", "global"})
      if (read_.spaces.size() < 2 && decoder_.take(name)) {
        read_.spaces.push_back(name);
        return true;
      }
    return false;
  }
  bool read_reduction() {
    for (const std::string_view name : {"add", "min", "max", "inc", "dec", "and", "or", "xor"})
      if (!read_.operation && decoder_.take(name)) {
        read_.operation = parse_reduce_operation(name);
        return true;
      }
    if (read_.tensor || read_.type || !read_.operation) return false;
    read_.type = decoder_.take_type();
    return true;
  }

  Decoder& decoder_;
  Modifiers read_;
};

/// Reads operands in the order of the rows, and makes the instruction.
class BulkDecoder {
 public:
  BulkDecoder(Decoder& decoder, const Modifiers& modifiers) : decoder_(decoder), modifiers_(modifiers) {
    form_.dimensions = modifiers.dimensions;
    form_.multicast = modifiers.multicast;
    form_.reduces = modifiers.operation.has_value();
    form_.operation = modifiers.operation.value_or(ReduceOperation::add);
  }

  void run(bool reduces) {
    if (modifiers_.tensor != (modifiers_.dimensions != 0))
      decoder_.refuse("has .tensor without dimensions, or the other way round");
    if (reduces && !modifiers_.operation) decoder_.refuse("has no operation");
    const Handler handler = read_copy();
    decoder_.finish(Kind::copy, handler, std::bit_cast<std::uint64_t>(form_));
    decoder_.instruction().table = decoder_.keep({kept_.begin(), kept_.end()});
  }

 private:
  Handler read_copy() {
    if (modifiers_.prefetch) return read_prefetch();
    if (goes("global", "shared::cta")) return read_store();
    if (goes("shared::cluster", "shared::cta")) return read_send();
    if (goes("shared::cluster", "global") || goes("shared::cta", "global")) return read_load();
    decoder_.refuse("copies between state spaces that are not implemented");
  }

  [[nodiscard]] bool goes(std::string_view to, std::string_view from) const {
    return modifiers_.spaces == std::vector{to, from};
  }
  void need(bool holds, const char* otherwise) const {
    if (!holds) decoder_.refuse(otherwise);
  }

  void read_address(std::size_t operand, Kept kept) {
    decoder_.read_address(decoder_.operand(operand));
    kept_[kept] = static_cast<std::uint64_t>(decoder_.instruction().immediate);
  }
  /// The side in global memory or of another block: a tensor map with coordinates, or an address and a size.
  void read_other(std::size_t operand, std::size_t size) {
    if (!modifiers_.tensor) {
      read_address(operand, kOtherOffset);
      decoder_.read(decoder_.operand(size), ptx::Type::u32);
      return;
    }
    decoder_.read_tensor_address(decoder_.operand(operand), modifiers_.dimensions);
    kept_[kOtherOffset] = static_cast<std::uint64_t>(decoder_.instruction().immediate);
  }
  /// The last operand, if .L2::cache_hint says that there is one.
  void read_policy(std::size_t operand) {
    if (modifiers_.hint) decoder_.read(decoder_.operand(operand), ptx::Type::b64);
  }
  void expect(std::size_t operands) const {
    const std::size_t all = operands + (modifiers_.multicast ? 1 : 0) + (modifiers_.hint ? 1 : 0);
    decoder_.expect_operands(all, all);
  }

  Handler read_load() {
    need(modifiers_.mbarrier && !modifiers_.group, "has another completion mechanism than an mbarrier");
    need(!form_.reduces, "is no reduction");
    form_.own_block = modifiers_.spaces[0] == "shared::cta";
    need(!form_.own_block || !form_.multicast, "multicasts to .shared::cta");
    const std::size_t barrier = modifiers_.tensor ? 2 : 3;
    expect(barrier + 1);
    read_address(0, kSharedOffset);
    read_other(1, 2);
    read_address(barrier, kBarrierOffset);
    if (form_.multicast) decoder_.read(decoder_.operand(barrier + 1), ptx::Type::u16);
    read_policy(barrier + (form_.multicast ? 2 : 1));
    if (!form_.own_block) decoder_.instruction().traits |= kTalksToCluster;
    return load;
  }

  Handler read_store() {
    need(modifiers_.group && !modifiers_.mbarrier, "has another completion mechanism than .bulk_group");
    need(!form_.multicast, "cannot multicast");
    expect(modifiers_.tensor ? 2 : 3);
    if (form_.reduces && !modifiers_.tensor) keep_reduction(true);
    read_address(1, kSharedOffset);
    read_other(0, 2);
    read_policy(modifiers_.tensor ? 2 : 3);
    // Each reduction is a relaxed atomic of .gpu (9.7.9.25.4.2).
    if (form_.reduces) decoder_.instruction().traits |= kTalksToBlocks;
    return store;
  }

  Handler read_send() {
    need(modifiers_.mbarrier && !modifiers_.group, "has another completion mechanism than an mbarrier");
    need(!modifiers_.tensor && !modifiers_.multicast && !modifiers_.hint,
         "has modifiers that are not for copies between blocks");
    expect(4);
    if (form_.reduces) keep_reduction(false);
    read_address(1, kSharedOffset);
    read_other(0, 2);
    read_address(3, kBarrierOffset);
    decoder_.instruction().traits |= kTalksToCluster;
    return send_to_peer;
  }

  Handler read_prefetch() {
    need(modifiers_.level2 && modifiers_.spaces == std::vector<std::string_view>{"global"} &&
             !form_.reduces && !modifiers_.mbarrier && !modifiers_.group && !modifiers_.multicast,
         "is no prefetch of .global to .L2");
    expect(modifiers_.tensor ? 1 : 2);
    form_.prefetch = true;
    read_other(0, 1);
    read_policy(modifiers_.tensor ? 1 : 2);
    return prefetch;
  }

  /// The reduction of a copy without a tensor map: its type is a modifier.
  void keep_reduction(bool global) {
    need(modifiers_.type.has_value(), "has no type");
    const std::optional<TensorElement> element = element_of(*modifiers_.type, *modifiers_.operation);
    const Reduction* const found = element ? reduction_of(*modifiers_.operation, *element) : nullptr;
    const bool half = element == TensorElement::f16 || element == TensorElement::bf16;
    need(modifiers_.noftz == (half && modifiers_.operation == ReduceOperation::add),
         "has .noftz where it does not belong, or not where it does");
    if (found == nullptr || (!global && !is_for_shared(*element))) decoder_.refuse_type(*modifiers_.type);
    kept_[kReduction] = std::bit_cast<std::uint64_t>(found);
  }
  /// The table of 9.7.9.25.4.2, for .shared::cluster.
  [[nodiscard]] bool is_for_shared(TensorElement element) const {
    return element == TensorElement::u32 || element == TensorElement::s32 ||
           (element == TensorElement::u64 && *modifiers_.operation == ReduceOperation::add);
  }
  /// .b32 and .b64 are for bits, and only they are.
  static std::optional<TensorElement> element_of(ptx::Type type, ReduceOperation operation) {
    struct Row {
      ptx::Type type;
      TensorElement element;
      bool bits;
    };
    static constexpr Row kRows[] = {
        {ptx::Type::b32, TensorElement::u32, true},  {ptx::Type::b64, TensorElement::u64, true},
        {ptx::Type::u32, TensorElement::u32, false}, {ptx::Type::s32, TensorElement::s32, false},
        {ptx::Type::u64, TensorElement::u64, false}, {ptx::Type::s64, TensorElement::s64, false},
        {ptx::Type::f16, TensorElement::f16, false}, {ptx::Type::bf16, TensorElement::bf16, false},
        {ptx::Type::f32, TensorElement::f32, false}, {ptx::Type::f64, TensorElement::f64, false}};
    for (const Row& row : kRows)
      if (row.type == type && (ptx::is_float(type) || row.bits == (operation >= ReduceOperation::bit_and)))
        return row.element;
    return std::nullopt;
  }

  Decoder& decoder_;
  const Modifiers& modifiers_;
  Form form_;
  std::array<std::uint64_t, kKept> kept_{};
};

}  // namespace

void decode_bulk(Decoder& decoder, bool reduces) {
  decoder.need(90);
  if (!reduces && decoder.take("commit_group")) {
    decoder.expect_operands(0, 0);
    return decoder.finish(Kind::copy, commit);
  }
  if (!reduces && decoder.take("wait_group")) {
    const bool reads_only = decoder.take("read");
    decoder.instruction().immediate = decoder.take_pending_groups();
    return decoder.finish(Kind::copy, reads_only ? wait<true> : wait<false>);
  }
  const Modifiers modifiers = ModifierReader(decoder).read(reduces);
  BulkDecoder(decoder, modifiers).run(reduces);
}

}  // namespace sparsekiln::emulator
