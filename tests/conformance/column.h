#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsekiln::conformance {

/// How a value is written in a case file, and compared.
enum class Kind : std::uint8_t {
  bits,
  signed_integer,
  unsigned_integer,
  f16,
  bf16,
  f32,
  f64,
  f16x2,
  bf16x2,
  predicate,
};

/// The allowed difference from the expected value: none, or the bound that the ISA gives for the instruction.
struct Tolerance {
  enum class Measure : std::uint8_t { exact, ulp, relative, absolute } measure = Measure::exact;
  double most = 0;
};

/// One value of a thread's row, in a register of its own.
struct Column {
  std::string name;  ///< of the register
  Kind kind = Kind::bits;
  int bytes = 4;   ///< 2, 4 or 8, as the register
  int offset = 0;  ///< in the row; a 16-bit value has 4 bytes for itself
  Tolerance tolerance;
  bool unordered = false;  ///< threads may have each other's values

  [[nodiscard]] int slot_bytes() const { return bytes < 4 ? 4 : bytes; }
};

/// The type's kind and bytes by its name ("u32", "bf16x2", "pred"); throws `invalid_argument` for another.
[[nodiscard]] Column column_of_type(std::string_view type);

/// What a thread must store in a column.
struct Expected {
  enum class Sort : std::uint8_t {
    value,      ///< these bits, or near them; a NaN stands for any NaN of its type
    anything,   ///< "*": the ISA leaves it open
    unwritten,  ///< "-": the thread stores nothing
  } sort = Sort::value;
  std::uint64_t bits = 0;
  bool any_nan = false;          ///< "nan": any NaN; of a pair, in the low half
  bool any_nan_in_high = false;  ///< of a pair
};

/// Reads one value: 0x… as bits, else an integer or a floating-point literal as the column's kind says
/// (`1.5`, `-0`, `inf`, `0x1p-149`: exactly representable, else refused; `nan`), a pair as low|high. Throws
/// `invalid_argument`.
[[nodiscard]] Expected parse_value(const Column& column, std::string_view text);

/// Whether `got` is what is expected: empty if it is, otherwise what is wrong in one phrase.
[[nodiscard]] std::string compare(const Column& column, const Expected& expected, std::uint64_t got);

/// A readable form: the bits, and the number that they represent.
[[nodiscard]] std::string show(const Column& column, std::uint64_t bits);

/// What unwritten memory of the answer holds, in each byte.
inline constexpr std::uint8_t kPoison = 0xa5;

}  // namespace sparsekiln::conformance
