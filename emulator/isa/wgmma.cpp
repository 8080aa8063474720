#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/isa/fragment.h"
#include "emulator/isa/wgmma_product.h"
#include "emulator/machine/async_proxy.h"
#include "emulator/machine/memory.h"

/// wgmma (PTX ISA 9.7.15): mma_async, fence, commit_group, wait_group.
namespace sparsekiln::emulator {
namespace {

using ptx::Type;

// ---- running ----

MatrixForm form_of(const Instruction& instruction) { return std::bit_cast<MatrixForm>(instruction.detail); }

/// The value that all lanes of a warp have.
std::uint64_t uniform(const Warp& warp, const Instruction& instruction, std::size_t operand,
                      const char* what) {
  const auto* const row = lanes::operand<const std::uint64_t>(warp, instruction, operand);
  for (int lane = 1; lane < kLanes; ++lane)
    if (row[lane] != row[0])
      fault(FaultKind::invalid_operation, warp, instruction, lane,
            std::string(what) + " must be the same in all lanes: " + hex(row[lane]) + " here, " +
                hex(row[0]) + " in lane 0");
  return row[0];
}

bool uniform_scale(const Warp& warp, const Instruction& instruction, std::size_t operand) {
  const Mask mask = warp.predicate(instruction.operands[operand]);
  if (mask != 0 && mask != kAllLanes)
    fault(FaultKind::invalid_operation, warp, instruction, std::countr_zero(~mask),
          "scale-d must be the same in all lanes");
  return mask != 0;
}

/// The units of memory that an operation reads of one matrix, as stretches that are as long as possible.
class Footprint {
 public:
  Footprint(std::uint64_t descriptor, MatrixMajor major, std::uint32_t element_bytes)
      : matrix_(parse_descriptor(descriptor)), major_(major), element_bytes_(element_bytes) {}

  void add_rows(std::uint32_t first, std::uint32_t rows) {
    const std::uint32_t in_unit = kMatrixUnitBytes / element_bytes_;
    const bool k_major = major_ == MatrixMajor::k;
    const std::uint32_t row_units = k_major ? rows : rows / in_unit;
    const std::uint32_t k_units = MatrixForm::kMatrixRowBytes / (k_major ? kMatrixUnitBytes : element_bytes_);
    const std::uint32_t begin = k_major ? first : first / in_unit;
    for (std::uint32_t row = begin; row < begin + row_units; ++row)
      for (std::uint32_t k = 0; k < k_units; ++k)
        add(unit_address(matrix_, major_, row, k) / kMatrixUnitBytes);
  }
  [[nodiscard]] std::vector<SharedRange> ranges() const {
    std::vector<SharedRange> result;
    for (std::uint32_t unit = least_; unit <= most_;) {
      const std::uint32_t empty = run_length(~std::uint64_t{0}, unit);
      unit += empty;
      if (empty != 0) continue;
      const std::uint32_t begin = unit;
      while (const std::uint32_t more = run_length(0, unit)) unit += more;
      result.push_back(
          {(begin * kMatrixUnitBytes - kSharedBase) % kMatrixAddresses, (unit - begin) * kMatrixUnitBytes});
    }
    return result;
  }

 private:
  static constexpr std::uint32_t kUnits = kMatrixAddresses / kMatrixUnitBytes;

  /// How many units from `unit` to the end of its word are the same: there, or after `flips` not there.
  [[nodiscard]] std::uint32_t run_length(std::uint64_t flips, std::uint32_t unit) const {
    if (unit == kUnits) return 0;
    const std::uint32_t in_word = unit % 64;
    const std::uint64_t rest = (words_[unit / 64] ^ flips) >> in_word;
    return std::min(static_cast<std::uint32_t>(std::countr_one(rest)), 64 - in_word);
  }
  void add(std::uint32_t unit) {
    words_[unit / 64] |= std::uint64_t{1} << unit % 64;
    least_ = std::min(least_, unit);
    most_ = std::max(most_, unit);
  }

  MatrixDescriptor matrix_;
  MatrixMajor major_;
  std::uint32_t element_bytes_;
  std::uint32_t least_ = kUnits;
  std::uint32_t most_ = 0;
  std::array<std::uint64_t, kUnits / 64> words_ = {};
};

void issue(Warp& warp, const Instruction& instruction, Mask mask, MatrixProduct run) {
  need_all_lanes(warp, instruction, mask);
  const MatrixForm form = form_of(instruction);
  const std::size_t a = 2 * form.sums();
  const std::size_t b = a + (form.a_in_registers ? kMatrixARegisters : 1);
  MatrixOperation operation{.instruction = &instruction, .run = run};
  if (form.a_in_registers)
    for (std::size_t r = 0; r < kMatrixARegisters; ++r)
      std::copy_n(lanes::operand<const std::uint32_t>(warp, instruction, a + r), kLanes,
                  operation.a_registers[r].data());
  else
    operation.a = uniform(warp, instruction, a, "the descriptor of A");
  operation.b = uniform(warp, instruction, b, "the descriptor of B");
  operation.accumulates = uniform_scale(warp, instruction, b + 1);
  const MatrixRegisters registers{
      .sums = {instruction.operands, form.sums()},
      .a = {instruction.operands + a, form.a_in_registers ? kMatrixARegisters : 0},
      .shape = form.columns() << 8 | form.depth()};
  WarpgroupStep& shared = check_matrix(warp, operation, registers);
  const AsyncIssue by{.warp = warp, .instruction = instruction, .agent = matrix_agent(warp)};
  if (!form.a_in_registers) {
    Footprint rows(operation.a, form.a, form.element_bytes);
    rows.add_rows(warp.index % kWarpgroupWarps * kSumRows, kSumRows);
    touch_shared(by, *warp.block, rows.ranges(), AccessKind::read);
  }
  if (shared.columns.empty()) {
    Footprint columns(operation.b, form.b, form.element_bytes);
    columns.add_rows(0, form.columns());
    shared.columns = columns.ranges();
  }
  touch_shared(by, *warp.block, shared.columns, AccessKind::read);
  queue_matrix(warp, operation);
  count_tensor(warp, instruction, std::uint64_t{2} * kSumRows * form.columns() * form.depth());
}

/// Instruction::table: what computes D.
void multiply(Warp& warp, const Instruction& instruction, Mask mask) {
  const auto bits = *static_cast<const std::uint64_t*>(instruction.table);
  issue(warp, instruction, mask, std::bit_cast<MatrixProduct>(bits));
}

void fence(Warp& warp, const Instruction& instruction, Mask mask) {
  need_all_lanes(warp, instruction, mask);
  fence_matrix(warp, instruction);
}
void commit(Warp& warp, const Instruction& instruction, Mask mask) {
  need_all_lanes(warp, instruction, mask);
  commit_matrix(warp, instruction);
}
void wait(Warp& warp, const Instruction& instruction, Mask mask) {
  need_all_lanes(warp, instruction, mask);
  wait_matrix(warp, instruction, static_cast<std::uint32_t>(instruction.immediate));
}

// ---- decoding ----

struct Shape {
  int n = 0;
  int k = 0;
};

Shape take_shape(Decoder& decoder) {
  for (const int k : {8, 16, 32})
    for (int n = 8; n <= 256; n += 8)
      if (decoder.take("m64n" + std::to_string(n) + "k" + std::to_string(k))) return {n, k};
  decoder.refuse("has a shape that is not implemented");
}

int immediate(const Decoder& decoder, std::size_t operand, std::initializer_list<int> values) {
  const std::int64_t value = decoder.constant(decoder.operand(operand));
  for (const int allowed : values)
    if (value == allowed) return allowed;
  decoder.refuse("operand " + std::to_string(operand + 1) + " is " + std::to_string(value));
}

/// imm-scale-a and imm-scale-b, then imm-trans-a, if A is in memory, and imm-trans-b; all that the types
/// have.
void read_immediates(Decoder& decoder, MatrixForm& form, bool integers) {
  std::size_t next = 4;
  if (!integers) {
    const int scale_a = immediate(decoder, next++, {1, -1});
    const int scale_b = immediate(decoder, next++, {1, -1});
    form.negates = scale_a != scale_b;
  }
  if (form.element_bytes == 2) {
    if (!form.a_in_registers && immediate(decoder, next++, {0, 1}) == 1) form.a = MatrixMajor::mn;
    if (immediate(decoder, next++, {0, 1}) == 1) form.b = MatrixMajor::mn;
  }
  decoder.expect_operands(next, next);
}

void read_a(Decoder& decoder, MatrixForm& form) {
  const ptx::Operand& a = decoder.operand(1);
  form.a_in_registers = a.kind == ptx::Operand::Kind::vector;
  if (!form.a_in_registers) {
    decoder.read(a, Type::b64);
    return;
  }
  for (const ptx::Operand& one : fragment(decoder, 1, kMatrixARegisters)) {
    decoder.read(one, Type::b32);
    decoder.access_later(one);
  }
}

void decode_multiply(Decoder& decoder) {
  if (decoder.take("sp")) decoder.refuse("is not implemented: sparse matrices are not");
  decoder.take_all({"sync", "aligned"});
  const Shape shape = take_shape(decoder);
  MatrixForm form;
  form.saturates = decoder.take("satfinite");
  const Type sums = decoder.take_type();
  const Type a = decoder.take_type();
  const Type b = decoder.take_type();
  const MatrixProduct run = product_of(sums, a, b);
  const bool integers = sums == Type::s32;
  form.column_blocks = static_cast<std::uint8_t>(shape.n / 8);
  form.element_bytes = static_cast<std::uint8_t>(ptx::bits(a) / 8);
  form.sum_registers = sums == Type::f16 ? HalfSums::kRegisters : WideSums<float>::kRegisters;
  if (run == nullptr || shape.k != static_cast<int>(form.depth()) || (form.saturates && !integers))
    decoder.refuse("is not implemented for these types and this shape");
  if (integers && shape.n > 32 && shape.n % 16 != 0) decoder.refuse("has no such N for integers");

  for (const ptx::Operand& one : fragment(decoder, 0, form.sums())) {
    decoder.write(one, 32);
    decoder.access_later(one);
  }
  for (const ptx::Operand& one : decoder.operand(0).elements) decoder.read(one, Type::b32);
  read_a(decoder, form);
  decoder.read(decoder.operand(2), Type::b64);
  decoder.read(decoder.operand(3), Type::pred);
  read_immediates(decoder, form, integers);

  decoder.instruction().table = decoder.keep({std::bit_cast<std::uint64_t>(run)});
  decoder.finish(Kind::tensor, multiply, std::bit_cast<std::uint64_t>(form));
}

void decode_wgmma(Decoder& decoder) {
  decoder.need_sm_90a();
  const std::string_view what = decoder.take_one({"mma_async", "fence", "commit_group", "wait_group"});
  if (what == "mma_async") {
    decode_multiply(decoder);
    return;
  }
  decoder.take_all({"sync", "aligned"});
  if (what == "wait_group") {
    decoder.instruction().immediate = decoder.take_pending_groups();
    return decoder.finish(Kind::tensor, wait);
  }
  decoder.expect_operands(0, 0);
  what == "fence" ? decoder.finish(Kind::fence, fence) : decoder.finish(Kind::tensor, commit);
}

}  // namespace

std::vector<Opcode> wgmma_opcodes() { return {{"wgmma", Domain::any, decode_wgmma}}; }

}  // namespace sparsekiln::emulator
