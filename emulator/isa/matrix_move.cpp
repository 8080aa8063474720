#include <cstdint>
#include <cstring>

#include "emulator/isa/fragment.h"
#include "emulator/isa/lanes.h"
#include "emulator/isa/memory_form.h"

/// ldmatrix, stmatrix, movmatrix (PTX ISA 9.7.14.5.15 to 9.7.14.5.17) of 8 × 8 matrices of 16-bit elements. A
/// fragment is a 32-bit register: lane L holds elements 2·(L mod 4) and the next of row L / 4.
namespace sparsekiln::emulator {
namespace {

constexpr int kSide = 8;
constexpr std::size_t kRowBytes = 16;

/// One matrix as lanes hold it; since four lanes make a row, 32 words are the matrix row by row.
struct Matrix {
  std::uint16_t at[kSide][kSide];
};
static_assert(sizeof(Matrix) == kLanes * sizeof(std::uint32_t));

Matrix transposed(const Matrix& from) {
  Matrix to;
  for (int row = 0; row < kSide; ++row)
    for (int column = 0; column < kSide; ++column) to.at[row][column] = from.at[column][row];
  return to;
}

/// What a handler needs to know, in Instruction::detail: the space, and how many matrices.
enum : std::uint64_t { kSpaceBits = 0xff, kCountShift = 8 };

std::size_t count_of(const Instruction& instruction) { return instruction.detail >> kCountShift; }

/// Host addresses of the rows of all matrices: lane 8·m + r names row r of matrix m. Returns what access()
/// does.
Mask find_rows(Warp& warp, const Instruction& instruction, std::uint32_t address_row, AccessKind kind,
               std::byte** host) {
  const std::size_t rows = count_of(instruction) * kSide;
  const Mask mask = rows == kLanes ? kAllLanes : (Mask{1} << rows) - 1;
  alignas(64) std::uint64_t addresses[kLanes];
  lane_addresses(warp, address_row, instruction.immediate, addresses);
  return access(
      warp, instruction, mask,
      {.space = static_cast<AccessSpace>(instruction.detail & kSpaceBits), .kind = kind, .bytes = kRowBytes},
      addresses, host);
}

/// Operands: a register for each matrix, the address.
template <bool Transposed>
void load(Warp& warp, const Instruction& instruction, Mask mask) {
  need_all_lanes(warp, instruction, mask);
  const std::size_t count = count_of(instruction);
  std::byte* host[kLanes];
  (void)find_rows(warp, instruction, instruction.operands[count], AccessKind::read, host);
  for (std::size_t m = 0; m < count; ++m) {
    Matrix matrix;
    for (std::size_t row = 0; row < kSide; ++row)
      std::memcpy(matrix.at[row], host[m * kSide + row], kRowBytes);
    if constexpr (Transposed) matrix = transposed(matrix);
    std::memcpy(lanes::operand<std::uint32_t>(warp, instruction, m), &matrix, sizeof matrix);
  }
}

template <bool Transposed>
void store(Warp& warp, const Instruction& instruction, Mask mask) {
  need_all_lanes(warp, instruction, mask);
  const std::size_t count = count_of(instruction);
  std::byte* host[kLanes];
  const Mask common = find_rows(warp, instruction, instruction.operands[count], AccessKind::write, host);
  std::byte written[kLanes][kRowBytes];
  for (std::size_t m = 0; m < count; ++m) {
    Matrix matrix;
    std::memcpy(&matrix, lanes::operand<const std::uint32_t>(warp, instruction, m), sizeof matrix);
    if constexpr (Transposed) matrix = transposed(matrix);
    std::memcpy(written[m * kSide], &matrix, sizeof matrix);
    for (std::size_t row = 0; row < kSide; ++row)
      std::memcpy(host[m * kSide + row], matrix.at[row], kRowBytes);
  }
  if (common != 0) after_common_write(warp, instruction, common, int{kRowBytes}, host, written);
}

void transpose_matrix(Warp& warp, const Instruction& instruction, Mask mask) {
  need_all_lanes(warp, instruction, mask);
  Matrix matrix;
  std::memcpy(&matrix, lanes::operand<const std::uint32_t>(warp, instruction, 1), sizeof matrix);
  matrix = transposed(matrix);
  std::memcpy(lanes::operand<std::uint32_t>(warp, instruction, 0), &matrix, sizeof matrix);
}

/// The modifiers and operands that ldmatrix and stmatrix share; true for `.trans`.
bool decode_move(Decoder& decoder, std::size_t registers, std::size_t address, bool loads) {
  decoder.take_all({"sync", "aligned", "m8n8"});
  const std::string_view times = decoder.take_one({"x1", "x2", "x4"});
  const std::size_t count = static_cast<std::size_t>(times[1] - '0');
  const bool is_transposed = decoder.take("trans");
  const AccessSpace space = take_space(decoder);
  if (space != AccessSpace::shared && space != AccessSpace::generic)
    decoder.refuse("is for shared memory only");
  if (decoder.take_type() != ptx::Type::b16) decoder.refuse("is implemented for .b16 only");
  decoder.expect_operands(2, 2);
  const ptx::Operand& list = decoder.operand(registers);
  const bool vector = list.kind == ptx::Operand::Kind::vector;
  if (vector ? list.elements.size() != count : count != 1)
    decoder.refuse("has another number of registers than ." + std::string(times) + " says");
  for (std::size_t m = 0; m < count; ++m) {
    const ptx::Operand& one = vector ? list.elements[m] : list;
    if (loads)
      decoder.write(one, 32);
    else
      decoder.read(one, ptx::Type::b32);
  }
  decoder.read_address(decoder.operand(address));
  decoder.accesses(static_cast<int>(kRowBytes));
  Instruction& instruction = decoder.instruction();
  instruction.kind = Kind::matrix_load;
  instruction.detail = static_cast<std::uint64_t>(space) | count << kCountShift;
  return is_transposed;
}

void decode_load(Decoder& decoder) {
  decoder.need(75);
  const bool is_transposed = decode_move(decoder, 0, 1, true);
  decoder.instruction().run = is_transposed ? load<true> : load<false>;
}

void decode_store(Decoder& decoder) {
  decoder.need(90);
  const bool is_transposed = decode_move(decoder, 1, 0, false);
  decoder.instruction().run = is_transposed ? store<true> : store<false>;
}

void decode_transpose(Decoder& decoder) {
  decoder.take_all({"sync", "aligned", "m8n8", "trans"});
  if (decoder.take_type() != ptx::Type::b16) decoder.refuse("is implemented for .b16 only");
  decoder.take_operands(32, {ptx::Type::b32});
  decoder.finish(Kind::warp, transpose_matrix);
}

}  // namespace

std::vector<Opcode> matrix_opcodes() {
  return {{"ldmatrix", Domain::any, decode_load},
          {"stmatrix", Domain::any, decode_store},
          {"movmatrix", Domain::any, decode_transpose}};
}

}  // namespace sparsekiln::emulator
