#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/ptx/module.h"

namespace sparsekiln::emulator {

struct Warp;
struct Instruction;

/// One bit a lane.
using Mask = std::uint32_t;
/// Calls `use` with the number of each bit that is set, in ascending order: lanes of a mask, or warps.
template <class Use>
inline void each_bit(std::uint32_t bits, Use use) {
  for (; bits != 0; bits &= bits - 1) use(std::countr_zero(bits));
}
inline constexpr Mask kAllLanes = 0xffffffffu;
inline constexpr int kLanes = 32;

/// Executes one instruction for the lanes of `mask`, which is never empty. Registers of other lanes keep
/// their values.
using Handler = void (*)(Warp& warp, const Instruction& instruction, Mask mask);

/// What counters call an instruction.
enum class Kind : std::uint8_t {
  integer,
  floating,
  conversion,
  move,
  predicate,
  branch,
  memory_global,
  memory_shared,
  memory_constant,
  memory_local,
  memory_param,
  memory_generic,
  atomic,
  barrier,
  fence,
  warp,
  copy,
  matrix_load,
  tensor,
  other,
};
[[nodiscard]] const char* name(Kind kind);

/// Flags of an instruction, for code that examines a program as a whole.
enum Trait : std::uint8_t {
  kTalksToBlocks = 1,  ///< an atomic, or a strong or volatile access, of memory that other blocks may reach
  kSyncsPartOfBlock = 2,
  kTalksToCluster = 8,  ///< may reach shared memory of other blocks of a cluster, or its barrier
  kMadeByDecoder = 4,   ///< not of the PTX (a join, a negation): no counter counts it
  /// Not a wgmma, and names registers that a wgmma names: Program::async_registers.
  kTouchesAsyncRegisters = 16,
  kCopiesRegister = 32,  ///< a mov from one 32-bit register to another
};

/// One predecoded instruction. Operands are rows of the warp's register file (byte offsets; see Warp::row):
/// those written first, then those read. A predicate's row is one Mask. Rows of 8- and 16-bit registers hold
/// std::uint16_t, of 32-bit ones std::uint32_t, of 64-bit ones std::uint64_t, one element a lane.
///
/// Two operands of one instruction are the same row or share no byte; a row that is written is also read only
/// where the PTX names the same register twice.
struct Instruction {
  Handler run = nullptr;
  const std::uint32_t* operands = nullptr;
  std::uint32_t guard = 0;      ///< row of the guard's mask; kNoGuard: all active lanes
  Mask guard_flip = 0;          ///< kAllLanes for @!p
  std::int64_t immediate = 0;   ///< offset of an address, target of a branch, …: the handler's own
  std::uint64_t detail = 0;     ///< modifiers, packed as the family likes
  const void* table = nullptr;  ///< into Program::storage, where an instruction has more to say
  std::uint32_t statement = 0;  ///< of ptx::Function::statements
  Kind kind = Kind::other;
  std::uint8_t traits = 0;
  std::uint16_t operand_count = 0;
};
inline constexpr std::uint32_t kNoGuard = 0xffffffffu;

/// A row that is filled once when a warp starts.
struct FixedRow {
  enum class Source : std::uint8_t { constant, special };
  Source source = Source::constant;
  std::uint32_t row = 0;
  int bytes = 4;            ///< an element: 2, 4 or 8; 0: a predicate's mask
  std::uint64_t value = 0;  ///< the constant, in every lane
  std::string special;      ///< "%tid.x"
};

/// `@!%p1 ld.global.v2.f32 {%f1, %f2}, [%rd1+8];` as the PTX has it; a label is the line it stands before.
[[nodiscard]] std::string text_of(const ptx::Function& function, const ptx::Statement& statement);

/// A kernel made ready to run: immutable, shared by all who launch it.
struct Program {
  Program() = default;
  Program(Program&&) = default;  // instructions point into it: not copied
  Program& operator=(Program&&) = default;

  ptx::Function function;  ///< as written
  std::vector<std::string> files;
  /// Ends with an instruction that ends all lanes. A register that is read before anything wrote it is zero.
  std::vector<Instruction> code;
  std::vector<std::uint32_t> operand_pool;
  std::vector<FixedRow> fixed_rows;
  std::uint32_t register_bytes = 0;  ///< of a warp's register file
  /// The first rows of the register file are registers that wgmma accesses, and copies of them: 32 bits each,
  /// and no other value ever has their place.
  std::uint32_t async_registers = 0;
  std::uint32_t shared_bytes = 0;  ///< static
  std::uint32_t shared_alignment = 16;
  std::uint32_t local_bytes = 0;  ///< a thread
  std::uint32_t param_bytes = 0;
  bool talks_to_blocks = false;  ///< some instruction has kTalksToBlocks
  std::uint32_t narrowest_access =
      4;  ///< bytes: of ld, st, atom, copies in global and shared memory; at most 4
  std::vector<std::vector<std::uint64_t>> storage;  ///< what Instruction::table points into

  [[nodiscard]] const ptx::Statement& statement(const Instruction& instruction) const {
    return function.statements[instruction.statement];
  }
};

}  // namespace sparsekiln::emulator
