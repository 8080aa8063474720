#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/program/program.h"
#include "emulator/ptx/module.h"

namespace sparsekiln::emulator {

/// One statement on its way to an Instruction: a family reads its modifiers and operands through this, and
/// what it leaves unread is refused by `decode`.
class Decoder {
 public:
  virtual ~Decoder() = default;

  [[nodiscard]] virtual const ptx::Statement& statement() const = 0;
  [[nodiscard]] virtual int compute_capability() const = 0;
  /// Refuses unless the target is sm_90a, which alone has the instruction.
  virtual void need_sm_90a() const = 0;
  /// Names the whole instruction and the line, and says why.
  [[noreturn]] void refuse(const std::string& why) const { throw refusal(why); }
  [[nodiscard]] virtual ptx::Error refusal(const std::string& why) const = 0;

  // ---- modifiers, in any order that ptxas takes ----
  /// Whether `name` is one of the modifiers that are left; then it is read. Types, state spaces and layouts
  /// are read from the left.
  virtual bool take(std::string_view name) = 0;
  /// The first modifier left that is one of these, else refuses. Empty where `names` holds "" and none fits.
  virtual std::string_view take_one(std::initializer_list<std::string_view> names) = 0;
  /// The first type left, else refuses.
  virtual ptx::Type take_type() = 0;
  [[nodiscard]] virtual bool more_modifiers() const = 0;

  // ---- operands ----
  [[nodiscard]] virtual std::size_t operands() const = 0;
  /// Refuses unless there are `least` to `most`.
  virtual void expect_operands(std::size_t least, std::size_t most) const = 0;
  [[nodiscard]] virtual const ptx::Operand& operand(std::size_t index) const = 0;
  /// Bits of the register that an operand is (1 for a predicate); 0: an immediate or an address.
  [[nodiscard]] virtual int register_bits(const ptx::Operand& operand) const = 0;

  /// Adds an operand that is written. Refuses one whose register is not `bits` wide; `_` gets a row of its
  /// own. All writes come before all reads.
  virtual void write(const ptx::Operand& operand, int bits) = 0;
  /// Adds an operand that is read: a register of `bits`, a special register, an immediate or a variable's
  /// address in the form that `type` gives it (a constant becomes a row). A predicate is type pred. `negated`
  /// operands are allowed for pred only, and become a row of their own before this instruction.
  virtual void read(const ptx::Operand& operand, ptx::Type type) = 0;
  /// Adds the base of an address as a row of 64 bits (32-bit registers are widened with zeros) and sets
  /// `instruction().immediate` to the offset. A base that is a variable or a number becomes a constant row.
  virtual void read_address(const ptx::Operand& operand) = 0;
  /// `[map, {c0, c1}]`: the address of a tensor map, as read_address does, then its coordinates as rows of 32
  /// bits. Refuses any other number of them than `dimensions`.
  virtual void read_tensor_address(const ptx::Operand& operand, std::size_t dimensions) = 0;
  /// Bytes into the parameters that an operand of ld.param names; refuses one whose `bytes` reach beyond the
  /// parameter.
  [[nodiscard]] virtual std::uint64_t parameter_offset(const ptx::Operand& operand,
                                                       std::uint64_t bytes) const = 0;
  /// Says that an operand changes nothing here: a hint.
  virtual void ignore(const ptx::Operand& operand) const = 0;
  /// Whether an address is a register plus a constant.
  [[nodiscard]] static bool base_is_register(const ptx::Operand& operand) {
    return operand.kind == ptx::Operand::Kind::address &&
           operand.elements.front().kind == ptx::Operand::Kind::reg;
  }
  /// An integer constant, else refuses.
  [[nodiscard]] virtual std::int64_t constant(const ptx::Operand& operand) const = 0;

  // ---- the instruction made ----
  /// Its handler, kind, immediate, detail and traits are the family's to set; operands and guard are done.
  virtual Instruction& instruction() = 0;
  /// Keeps data with the program for Instruction::table.
  virtual const std::uint64_t* keep(std::vector<std::uint64_t> data) = 0;
  /// Says how many bytes a lane's access has, for Program::narrowest_access.
  virtual void accesses(int bytes) = 0;
  /// Marks a read operand whose old value matters though it is written as well, or a write that may leave
  /// lanes out: nothing else is needed for guarded instructions.
  virtual void partial_write() = 0;
  /// Says that the instruction, a wgmma, may access this register after it was issued.
  virtual void access_later(const ptx::Operand& operand) = 0;
};

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
/// cp.async.mbarrier.arrive, after its `.mbarrier` (isa/mbarrier.cpp).
void decode_copies_arrival(Decoder& decoder);
[[nodiscard]] std::vector<Opcode> cluster_opcodes();     // isa/cluster.cpp: mapa, getctarank
[[nodiscard]] std::vector<Opcode> tensor_map_opcodes();  // isa/tensor_map.cpp: tensormap, createpolicy
[[nodiscard]] std::vector<Opcode> matrix_opcodes();      // isa/matrix_move.cpp: ldmatrix, stmatrix, movmatrix
[[nodiscard]] std::vector<Opcode> tensor_opcodes();      // isa/tensor.cpp: mma.sync
[[nodiscard]] std::vector<Opcode> wgmma_opcodes();       // isa/wgmma.cpp: wgmma
[[nodiscard]] std::vector<Opcode> register_count_opcodes();  // isa/register_count.cpp: setmaxnreg

}  // namespace sparsekiln::emulator
