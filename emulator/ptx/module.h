#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// A PTX module with names resolved (PTX ISA 9.0, sections 4 and 5). Everything in it has been read and
/// understood; the parser refuses what it does not know.
namespace sparsekiln::ptx {

/// PTX that is malformed, or that this emulator does not implement exactly. The message names what was met.
class Error : public std::runtime_error {
 public:
  Error(int line, const std::string& message)
      : std::runtime_error("line " + std::to_string(line) + ": " + message), line_(line) {}
  [[nodiscard]] int line() const noexcept { return line_; }  ///< of the PTX text, from 1

 private:
  int line_;
};

/// Fundamental and alternate types (5.2). Sizes in bits: size_of.
enum class Type : std::uint8_t {
  pred,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f16x2,
  bf16,
  bf16x2,
  tf32,
  f32,
  f64,
  e4m3,
  e5m2,
  e4m3x2,
  e5m2x2,
};
/// "u32" → Type::u32; nothing for anything else.
[[nodiscard]] std::optional<Type> parse_type(std::string_view name);
[[nodiscard]] std::string_view name(Type type);
[[nodiscard]] int bits(Type type);  ///< 1 for pred
/// b8 to b64, which say nothing of what the bits are.
[[nodiscard]] Type untyped(int bits);
[[nodiscard]] bool is_signed(Type type);
[[nodiscard]] bool is_float(Type type);

enum class Space : std::uint8_t { generic, global, shared, constant, local, param };

/// A register of a function, named once: scopes are resolved.
struct Register {
  std::string name;  ///< "%r12"
  Type type = Type::b32;
};

/// A variable of a module or of a function (5.4).
struct Variable {
  std::string name;
  Space space = Space::global;
  std::uint64_t bytes = 0;  ///< 0: `.extern .shared x[]`, as much as the launch gives
  std::uint32_t alignment = 1;
  std::vector<std::uint8_t>
      initial;  ///< shorter than `bytes`: the rest is zero; empty and not `initialised`: undefined
  bool initialised = false;
  bool external = false;
};

/// What an instruction names.
struct Operand {
  enum class Kind : std::uint8_t {
    reg,       ///< `index` into Function::registers
    special,   ///< `text`: "%tid.x", "%laneid" …
    integer,   ///< `bits`, two's complement of 64
    real32,    ///< 0fXXXXXXXX: `bits`
    real64,    ///< 0dXXXXXXXXXXXXXXXX, or a decimal constant: `bits`
    variable,  ///< the address of `text`, + `offset`
    label,     ///< `index`: the statement to go to; one after the last: the end of the function
    address,   ///< [base + offset]: `elements[0]` is the base (reg, variable or integer; a param's name is a
               ///< variable); [map, {x, y}]: `elements[1]` is the vector of coordinates
    vector,    ///< {a, b, …}: `elements`
    sink,      ///< `_`
    pair,      ///< p|q of setp, match.all, shfl: `elements`
  };
  Kind kind = Kind::reg;
  bool negated = false;  ///< !%p
  std::uint32_t index = 0;
  std::uint64_t bits = 0;
  std::int64_t offset = 0;
  std::string text;
  std::vector<Operand> elements;
};

/// A place in the source that the PTX was made of (`.loc`); line 0: unknown.
struct SourcePlace {
  std::uint32_t file = 0;  ///< of Module::files
  std::uint32_t line = 0;
};

/// One instruction: `@!%p1 ld.global.v2.f32 {%f1, %f2}, [%rd1+8];`
struct Statement {
  int line = 0;  ///< of the PTX text
  SourcePlace source;
  bool guarded = false;
  bool guard_negated = false;
  std::uint32_t guard = 0;             ///< register
  std::string opcode;                  ///< "ld"
  std::vector<std::string> modifiers;  ///< "global", "v2", "f32": in order, without dots
  std::vector<Operand> operands;
};

struct Parameter {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint32_t alignment = 1;
  std::uint64_t offset = 0;  ///< in the buffer of parameters
};

/// A kernel: `.entry`. Functions that are called (`.func`) are refused.
struct Function {
  std::string name;
  int line = 0;
  std::vector<Parameter> parameters;
  std::vector<Register> registers;  ///< those that are used, by first use
  std::vector<Variable> variables;  ///< .shared and .local of its own
  std::vector<Statement> statements;
  std::uint32_t max_threads = 0;                  ///< .maxntid, multiplied out; 0: not said
  std::uint32_t required_threads[3] = {0, 0, 0};  ///< .reqntid; 0: not said
  std::uint32_t required_cluster[3] = {0, 0, 0};  ///< .reqnctapercluster, in blocks; 0: not said
  bool needs_cluster = false;                     ///< .explicitcluster: a launch has to say one
  std::uint32_t max_registers = 0;                ///< .maxnreg: of a thread; 0: not said
  std::uint32_t min_blocks = 0;                   ///< .minnctapersm: at once on a multiprocessor; 0: not said
};

struct Module {
  int version = 0;                     ///< 90 for `.version 9.0`
  int compute_capability = 0;          ///< 90 for `.target sm_90` and `sm_90a`
  bool architecture_specific = false;  ///< the `a` of sm_90a
  std::vector<std::string> files;      ///< `.file`, by its number
  std::vector<Variable> variables;
  std::vector<Function> functions;
};

}  // namespace sparsekiln::ptx
