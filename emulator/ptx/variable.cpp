#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "emulator/ptx/parser.h"

namespace sparsekiln::ptx {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 32;  // of one variable: more is no kernel's
constexpr std::uint32_t kMostAlignment = 1u << 16;
constexpr std::size_t kMostDimensions = 8;
constexpr std::uint64_t kParameterBytes = 32764;  // PTX ISA 5.1.6.1, from version 8.1 and sm_70

std::uint32_t bytes_of(Type type) { return static_cast<std::uint32_t>(bits(type)) / 8; }

/// A product that must stay within kMostBytes.
std::uint64_t array_bytes(std::uint64_t bytes, std::uint64_t count, std::string_view name, int line) {
  if (count != 0 && bytes > kMostBytes / count)
    throw Error(line, quoted(name) + " has more than " + std::to_string(kMostBytes) + " bytes");
  return bytes * count;
}

/// Dimensions of an array: `[4][8]`. The first may be left open: `[]`.
struct Shape {
  std::vector<std::uint64_t> dimensions;
  bool open = false;
};

Shape parse_shape(Cursor& cursor) {
  Shape shape;
  while (cursor.at('[')) {
    const int line = cursor.take().line;
    if (shape.dimensions.size() == kMostDimensions)
      throw Error(line, "an array of more than " + std::to_string(kMostDimensions) + " dimensions");
    if (cursor.at(']') && shape.dimensions.empty()) {
      shape.open = true;
      shape.dimensions.push_back(0);
    } else {
      shape.dimensions.push_back(cursor.expect_integer("an array's size", kMostBytes));
      if (shape.dimensions.back() == 0) throw Error(line, "an array of no elements");
    }
    cursor.expect(']');
  }
  return shape;
}

/// Reads initial values into a variable's bytes (5.4.4).
class Initialiser {
 public:
  Initialiser(Parse& parse, const Shape& shape, Type type, std::vector<std::uint8_t>& bytes)
      : parse_(parse),
        cursor_(parse.cursor),
        shape_(shape),
        type_(type),
        size_(bytes_of(type)),
        bytes_(bytes) {
    stride_.assign(shape.dimensions.size() + 1, size_);
    for (std::size_t i = shape.dimensions.size(); i > 0; --i)
      stride_[i - 1] = stride_[i] * std::max<std::uint64_t>(shape.dimensions[i - 1], 1);
  }
  void read() { read_at(0, 0); }

 private:
  /// The elements of dimension `level` that start at byte `offset`; after the last dimension, a scalar.
  /// Recursion is limited by kMostDimensions.
  void read_at(std::size_t level, std::uint64_t offset) {
    if (level == shape_.dimensions.size()) return put(offset, scalar());
    const int line = cursor_.peek().line;
    cursor_.expect('{');
    if (cursor_.accept('}')) return;
    const bool open = level == 0 && shape_.open;
    for (std::uint64_t i = 0;; ++i) {
      if (!open && i == shape_.dimensions[level])
        throw Error(line, "more initial values than the " + std::to_string(i) + " that the array has");
      read_at(level + 1, offset + i * stride_[level + 1]);
      if (!cursor_.accept(',')) break;
    }
    cursor_.expect('}');
  }

  void put(std::uint64_t offset, std::uint64_t value) {
    const std::uint64_t end = offset + size_;
    if (end > bytes_.size()) {
      const std::uint64_t more = end - bytes_.size();
      if (more > parse_.initial_bytes_left)
        throw Error(cursor_.peek().line, "initial values with gaps too large to be stored");
      parse_.initial_bytes_left -= more;
      bytes_.resize(end);
    }
    std::memcpy(bytes_.data() + offset, &value, size_);  // little-endian, as the device is
  }

  std::uint64_t scalar() {
    const bool negative = cursor_.accept('-');
    const Token token = cursor_.peek();
    if (token.kind == Token::Kind::word)
      throw Error(token.line, "an address as initial value is not implemented: " + quoted(token.text));
    std::uint64_t value = 0;
    if (type_ == Type::f32)
      value = single(token, negative);
    else if (type_ == Type::f64)
      value = twice(token, negative);
    else
      value = integer(token, negative);
    cursor_.take();
    return value;
  }

  std::uint64_t single(const Token& token, bool negative) const {
    const std::uint64_t sign = negative ? std::uint64_t{1} << 31 : 0;
    if (token.kind == Token::Kind::real32) return token.bits ^ sign;
    if (token.kind != Token::Kind::real64) cursor_.unexpected("a real as initial value");
    return std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(token.bits))) ^ sign;
  }

  std::uint64_t twice(const Token& token, bool negative) const {
    if (token.kind != Token::Kind::real64) cursor_.unexpected("a real of 64 bits as initial value");
    return token.bits ^ (negative ? std::uint64_t{1} << 63 : 0);
  }

  /// Fits the type, signed or unsigned: 255 and -1 are the same byte.
  std::uint64_t integer(const Token& token, bool negative) const {
    if (token.kind != Token::Kind::integer || is_float(type_) || size_ > 8)
      cursor_.unexpected("an initial value of type ." + std::string(name(type_)));
    const int width = static_cast<int>(size_) * 8;
    const std::uint64_t most = negative ? std::uint64_t{1} << (width - 1) : ~std::uint64_t{0} >> (64 - width);
    if (token.bits > most)
      throw Error(token.line, "an initial value that does not fit ." + std::string(name(type_)));
    return negative ? ~token.bits + 1 : token.bits;
  }

  Parse& parse_;
  Cursor& cursor_;
  const Shape& shape_;
  Type type_;
  std::uint64_t size_;
  std::vector<std::uint64_t> stride_;  ///< bytes of an element of each dimension's parent
  std::vector<std::uint8_t>& bytes_;
};

static_assert(std::endian::native == std::endian::little);

/// What a declaration says of size: the bytes of `name`, whose dimensions are known.
std::uint64_t size_of(const Shape& shape, Type type, std::string_view name, int line) {
  std::uint64_t bytes = bytes_of(type);
  for (const std::uint64_t dimension : shape.dimensions)
    bytes = array_bytes(bytes, std::max<std::uint64_t>(dimension, 1), name, line);
  return bytes;
}

bool may_be_initialised(Space space) { return space == Space::global || space == Space::constant; }

void initialise(Parse& parse, Variable& variable, const Shape& shape, Type type, int line) {
  if (!may_be_initialised(variable.space) || variable.external)
    throw Error(line, quoted(variable.name) + " cannot have initial values: only .global and .const can");
  Initialiser(parse, shape, type, variable.initial).read();
  if (!shape.open) return;
  const std::uint64_t row = variable.bytes;  // of the open dimension
  variable.bytes = (variable.initial.size() + row - 1) / row * row;
  if (variable.bytes == 0) throw Error(line, quoted(variable.name) + " has no elements");
}

Variable parse_variable(Parse& parse, Space space, bool external, Type type, std::uint32_t alignment) {
  Cursor& cursor = parse.cursor;
  Variable variable;
  variable.space = space;
  variable.external = external;
  variable.alignment = alignment != 0 ? alignment : bytes_of(type);
  variable.initialised = may_be_initialised(space);  // zero, where nothing is said (5.4.4)
  const int line = cursor.peek().line;
  const std::string_view name = cursor.expect_word("a variable's name");
  if (name == "_" || name.front() == '%') throw Error(line, "not a variable's name: " + quoted(name));
  variable.name = name;
  const Shape shape = parse_shape(cursor);
  variable.bytes = size_of(shape, type, name, line);
  if (external && space != Space::shared)
    throw Error(line, quoted(name) + " is .extern: there is nothing to link with");
  if (external && !shape.open) throw Error(line, quoted(name) + " is .extern .shared, but its size is given");
  if (cursor.accept('='))
    initialise(parse, variable, shape, type, line);
  else if (shape.open && !external)
    throw Error(line, quoted(name) + " has no size");
  if (external) variable.bytes = 0;
  return variable;
}

Parameter parse_parameter(Cursor& cursor) {
  if (!cursor.accept_dotted("param")) cursor.unexpected("'.param'");
  Parameter parameter;
  const std::uint32_t alignment = parse_alignment(cursor);
  const int type_line = cursor.peek().line;
  const Type type = parse_declared_type(cursor);
  if (type == Type::pred) throw Error(type_line, "a parameter of type .pred");
  if (cursor.accept_dotted("ptr")) {  // says what it points to (5.1.6.2): nothing that changes the parameter
    for (const char* space : {"const", "global", "local", "shared"})
      if (cursor.accept_dotted(space)) break;
    static_cast<void>(parse_alignment(cursor));
  }
  const int line = cursor.peek().line;
  const std::string_view name = cursor.expect_word("a parameter's name");
  parameter.name = name;
  const Shape shape = parse_shape(cursor);
  if (shape.open) throw Error(line, quoted(name) + " has no size");
  parameter.bytes = size_of(shape, type, name, line);
  parameter.alignment = alignment != 0 ? alignment : bytes_of(type);
  return parameter;
}

}  // namespace

std::optional<Space> space_of(const Token& directive) {
  if (directive.kind != Token::Kind::dotted) return std::nullopt;
  if (directive.text == "global") return Space::global;
  if (directive.text == "const") return Space::constant;
  if (directive.text == "shared") return Space::shared;
  if (directive.text == "local") return Space::local;
  return std::nullopt;
}

Type parse_declared_type(Cursor& cursor) {
  if (!cursor.at(Token::Kind::dotted)) cursor.unexpected("a type");
  const Token token = cursor.take();
  const auto type = parse_type(token.text);
  const bool fundamental = type && (*type <= Type::f16x2 || *type == Type::f32 || *type == Type::f64);
  if (!fundamental)
    throw Error(token.line, "not a type that this emulator declares anything with: " +
                                quoted("." + std::string(token.text)));
  return *type;
}

std::uint32_t parse_alignment(Cursor& cursor) {
  if (!cursor.accept_dotted("align")) return 0;
  const int line = cursor.peek().line;
  const auto alignment = static_cast<std::uint32_t>(cursor.expect_integer("an alignment", kMostAlignment));
  if (!std::has_single_bit(alignment)) throw Error(line, "an alignment that is not a power of two");
  return alignment;
}

std::vector<Variable> parse_variables(Parse& parse, Space space, bool external) {
  Cursor& cursor = parse.cursor;
  const std::uint32_t alignment = parse_alignment(cursor);
  const int line = cursor.peek().line;
  const Type type = parse_declared_type(cursor);
  if (type == Type::pred) throw Error(line, "a variable of type .pred");
  std::vector<Variable> variables;
  do variables.push_back(parse_variable(parse, space, external, type, alignment));
  while (cursor.accept(','));
  cursor.expect(';');
  return variables;
}

std::vector<Parameter> parse_parameters(Cursor& cursor) {
  std::vector<Parameter> parameters;
  if (!cursor.accept('(') || cursor.accept(')')) return parameters;
  std::uint64_t offset = 0;
  do {
    const int line = cursor.peek().line;
    Parameter parameter = parse_parameter(cursor);
    offset = (offset + parameter.alignment - 1) / parameter.alignment * parameter.alignment;
    parameter.offset = offset;
    offset += parameter.bytes;
    if (offset > kParameterBytes)
      throw Error(line, "parameters of more than " + std::to_string(kParameterBytes) + " bytes");
    parameters.push_back(std::move(parameter));
  } while (cursor.accept(','));
  cursor.expect(')');
  return parameters;
}

}  // namespace sparsekiln::ptx
