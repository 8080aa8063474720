#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/program/assembly.h"
#include "emulator/program/draft.h"
#include "emulator/program/program.h"
#include "emulator/ptx/module.h"

namespace sparsekiln::emulator {

class Decoder;
/// What reads one opcode: fills in decoder.instruction().
using Family = void (*)(Decoder& decoder);
/// The same name may stand for several types: `add.s32`, `add.f32`, `add.f16`. The last modifier that is a
/// type says which is meant.
enum class Domain : std::uint8_t {
  any,       ///< whatever types it has
  integer,   ///< b, u, s, pred
  floating,  ///< f32, f64
  half,      ///< f16, bf16 and their pairs
};

/// One statement on its way to an Instruction: a family reads its modifiers and operands through this, and
/// what it leaves unread is refused. What it made is added to an Assembly.
class Decoder {
 public:
  Decoder(Assembly& assembly, const ptx::Statement& statement);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Runs `family`, refuses what it left unread, and appends the instruction, after those that it needs.
  void run(Family family);
  /// The domain of the last modifier that is a type; any: there is none, or it is of no domain.
  [[nodiscard]] Domain domain() const;

  [[nodiscard]] int compute_capability() const { return assembly_.module().compute_capability; }
  /// Refuses targets of a lower compute capability.
  void need(int compute_capability) const;
  /// Refuses unless the target is sm_90a, which alone has the instruction.
  void need_sm_90a() const;
  /// Names the whole instruction and the line, and says why.
  [[noreturn]] void refuse(const std::string& why) const;
  [[noreturn]] void refuse_type(ptx::Type type) const;

  // ---- modifiers, in any order that ptxas takes ----
  /// Whether `name` is one of the modifiers that are left; then it is read. Types, state spaces and layouts
  /// are read from the left.
  bool take(std::string_view name);
  /// The first modifier left that is one of these, else refuses. Empty where `names` holds "" and none fits.
  std::string_view take_one(std::initializer_list<std::string_view> names);
  /// Each of these, else refuses.
  void take_all(std::initializer_list<std::string_view> names);
  /// The first type left, else refuses.
  ptx::Type take_type();
  [[nodiscard]] bool more_modifiers() const { return next_modifier() < statement_.modifiers.size(); }

  // ---- operands ----
  [[nodiscard]] std::size_t operands() const { return statement_.operands.size(); }
  /// Refuses unless there are `least` to `most`.
  void expect_operands(std::size_t least, std::size_t most) const;
  [[nodiscard]] const ptx::Operand& operand(std::size_t index) const;
  /// Bits of the register that an operand is (1 for a predicate); 0: an immediate or an address.
  [[nodiscard]] int register_bits(const ptx::Operand& operand) const;

  /// Adds an operand that is written. Refuses one whose register is not `bits` wide; `_` gets a row of its
  /// own. All writes come before all reads.
  void write(const ptx::Operand& operand, int bits);
  /// Adds an operand that is read: a register of `bits`, a special register, an immediate or a variable's
  /// address in the form that `type` gives it (a constant becomes a row). A predicate is type pred. `negated`
  /// operands are allowed for pred only, and become a row of their own before this instruction.
  void read(const ptx::Operand& operand, ptx::Type type);
  /// All operands: one that is written, and those that are read.
  void take_operands(int written_bits, std::initializer_list<ptx::Type> read_types);
  /// Adds the base of an address as a row of 64 bits (32-bit registers are widened with zeros) and sets
  /// `instruction().immediate` to the offset. A base that is a variable or a number becomes a constant row.
  void read_address(const ptx::Operand& operand);
  /// `[map, {c0, c1}]`: the address of a tensor map, as read_address does, then its coordinates as rows of 32
  /// bits. Refuses any other number of them than `dimensions`.
  void read_tensor_address(const ptx::Operand& operand, std::size_t dimensions);
  /// Bytes into the parameters that an operand of ld.param names; refuses one whose `bytes` reach beyond the
  /// parameter.
  [[nodiscard]] std::uint64_t parameter_offset(const ptx::Operand& operand, std::uint64_t bytes) const;
  /// Says that an operand changes nothing here: a hint.
  void ignore(const ptx::Operand& operand) const { mark(operand); }
  /// Whether an address is a register plus a constant.
  [[nodiscard]] static bool base_is_register(const ptx::Operand& operand) {
    return operand.kind == ptx::Operand::Kind::address &&
           operand.elements.front().kind == ptx::Operand::Kind::reg;
  }
  /// An integer constant, else refuses.
  [[nodiscard]] std::int64_t constant(const ptx::Operand& operand) const;
  /// The one operand of an instruction that waits until so many groups are pending.
  [[nodiscard]] std::int64_t take_pending_groups() const;

  // ---- the instruction made ----
  /// Its handler, kind, immediate, detail and traits are the family's to set; operands and guard are done.
  Instruction& instruction() { return draft_.instruction; }
  void finish(Kind kind, Handler handler) {
    draft_.instruction.kind = kind;
    draft_.instruction.run = handler;
  }
  void finish(Kind kind, Handler handler, std::uint64_t detail) {
    finish(kind, handler);
    draft_.instruction.detail = detail;
  }
  /// Keeps data with the program for Instruction::table.
  const std::uint64_t* keep(std::vector<std::uint64_t> data);
  /// Says how many bytes a lane's access has, for Program::narrowest_access.
  void accesses(int bytes);
  /// Says that the instruction, a wgmma, may access this register after it was issued.
  void access_later(const ptx::Operand& operand);

 private:
  [[nodiscard]] const ptx::Register& register_of(const ptx::Operand& operand) const;
  [[nodiscard]] int row_bytes_or_refuse(int bits, const ptx::Operand& operand) const;
  [[nodiscard]] std::uint64_t address_of_variable(const ptx::Operand& operand) const;
  /// The same where a parameter's own address, in the space of parameters, is allowed as well.
  [[nodiscard]] std::uint64_t address_of_named(const ptx::Operand& operand) const;
  [[nodiscard]] std::uint64_t immediate_bits(const ptx::Operand& operand, ptx::Type type) const;
  [[nodiscard]] std::uint32_t row_to_read(const ptx::Operand& operand, ptx::Type type);
  /// The first modifier that has not been taken; as many as there are: none.
  [[nodiscard]] std::size_t next_modifier() const;
  /// Whether a modifier is what can be taken now, before others that stand to its left.
  [[nodiscard]] bool can_take(std::size_t modifier) const;
  /// An instruction before this one that fills a temporary row from `from`.
  std::uint32_t add_before(Handler handler, int bytes, std::uint32_t from);
  void read_base(const ptx::Operand& operand);
  [[nodiscard]] bool was_used(const ptx::Operand& operand) const;
  void mark(const ptx::Operand& operand) const { used_.push_back(&operand); }

  Assembly& assembly_;
  const ptx::Statement& statement_;
  std::vector<bool> taken_;  ///< by modifier
  mutable std::vector<const ptx::Operand*> used_;
  Draft draft_;
};

struct Opcode {
  std::string_view name;  ///< "add"
  Domain domain;
  Family decode;
};
/// The opcodes of one file of isa/. Branches, and what ends a thread, are the decoder's own (program/flow).
[[nodiscard]] std::vector<Opcode> integer_opcodes();  // isa/integer.cpp
[[nodiscard]] std::vector<Opcode> logic_opcodes();    // isa/logic.cpp: and, or, shl, lop3, prmt, bfe, popc …
[[nodiscard]] std::vector<Opcode> float_opcodes();    // isa/floating.cpp: f32 and f64
[[nodiscard]] std::vector<Opcode> half_opcodes();     // isa/half.cpp: f16, bf16 and their pairs
[[nodiscard]] std::vector<Opcode> conversion_opcodes();  // isa/conversion.cpp: cvt
[[nodiscard]] std::vector<Opcode> address_opcodes();     // isa/address.cpp: cvta, isspacep
[[nodiscard]] std::vector<Opcode> comparison_opcodes();  // isa/comparison.cpp: setp, set, selp, slct, testp
[[nodiscard]] std::vector<Opcode> move_opcodes();        // isa/move.cpp: mov, with packing and unpacking
[[nodiscard]] std::vector<Opcode> load_store_opcodes();  // isa/load_store.cpp: ld, ldu, st, prefetch
[[nodiscard]] std::vector<Opcode> atomic_opcodes();      // isa/atomic.cpp: atom, red
[[nodiscard]] std::vector<Opcode>
barrier_opcodes();  // isa/barrier.cpp: bar, barrier, bar.warp, fence, membar
[[nodiscard]] std::vector<Opcode>
warp_opcodes();  // isa/warp_wide.cpp: shfl, vote, match, redux, activemask, elect
[[nodiscard]] std::vector<Opcode> async_copy_opcodes();  // isa/async_copy.cpp: cp.async
[[nodiscard]] std::vector<Opcode> mbarrier_opcodes();    // isa/mbarrier.cpp
/// cp.async.bulk… and cp.reduce.async.bulk…, after their `.bulk` (isa/bulk_copy.cpp).
void decode_bulk(Decoder& decoder, bool reduces);
/// cp.async.mbarrier.arrive, after its `.mbarrier` (isa/mbarrier.cpp).
void decode_copies_arrival(Decoder& decoder);
[[nodiscard]] std::vector<Opcode> cluster_opcodes();     // isa/cluster.cpp: mapa, getctarank
[[nodiscard]] std::vector<Opcode> tensor_map_opcodes();  // isa/tensor_map.cpp: tensormap, createpolicy
[[nodiscard]] std::vector<Opcode> matrix_opcodes();      // isa/matrix_move.cpp: ldmatrix, stmatrix, movmatrix
[[nodiscard]] std::vector<Opcode> tensor_opcodes();      // isa/tensor.cpp: mma.sync
[[nodiscard]] std::vector<Opcode> wgmma_opcodes();       // isa/wgmma.cpp: wgmma
[[nodiscard]] std::vector<Opcode> register_count_opcodes();  // isa/register_count.cpp: setmaxnreg

}  // namespace sparsekiln::emulator
