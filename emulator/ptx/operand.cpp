#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "emulator/ptx/parser.h"

namespace sparsekiln::ptx {
namespace {

Operand of(Operand::Kind kind) {
  Operand operand;
  operand.kind = kind;
  return operand;
}

constexpr std::uint64_t kSign = std::uint64_t{1} << 63;

/// Two's complement of a number with a minus before it.
std::uint64_t negate(const Token& number) {
  if (number.bits > kSign) throw Error(number.line, "an integer below -2^63: -" + std::string(number.text));
  return ~number.bits + 1;
}

/// PTX ISA 9.0, section 10, without %envreg and %pm, which drivers and profilers define.
constexpr std::array<std::string_view, 24> kScalars{
    "%aggr_smem_size",
    "%clock",
    "%clock64",
    "%clock_hi",
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%current_graph_exec",
    "%dynamic_smem_size",
    "%globaltimer",
    "%globaltimer_hi",
    "%globaltimer_lo",
    "%gridid",
    "%is_explicit_cluster",
    "%laneid",
    "%lanemask_eq",
    "%lanemask_ge",
    "%lanemask_gt",
    "%lanemask_le",
    "%lanemask_lt",
    "%nsmid",
    "%nwarpid",
    "%smid",
    "%total_smem_size",
    "%warpid",
};
constexpr std::array<std::string_view, 8> kVectors{
    "%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"};

}  // namespace

bool is_special_register(std::string_view name) {
  const std::size_t dot = name.find('.');
  const std::string_view base = name.substr(0, dot);
  const bool vector = std::find(kVectors.begin(), kVectors.end(), base) != kVectors.end();
  if (dot == std::string_view::npos)
    return !vector && std::find(kScalars.begin(), kScalars.end(), base) != kScalars.end();
  const std::string_view element = name.substr(dot + 1);
  return vector && (element == "x" || element == "y" || element == "z");
}

Operand OperandReader::read() {
  const int line = cursor_.peek().line;
  Operand first = read_one();
  if (!cursor_.accept('|')) return first;
  Operand pair = of(Operand::Kind::pair);
  pair.elements.reserve(2);
  pair.elements.push_back(std::move(first));
  pair.elements.push_back(read_one());
  for (const Operand& element : pair.elements)
    if (element.kind != Operand::Kind::reg && element.kind != Operand::Kind::sink)
      throw Error(line, "'|' joins two registers, nothing else");
  return pair;
}

Operand OperandReader::read_one() {
  switch (cursor_.peek().kind) {
    case Token::Kind::word:
      return read_named();
    case Token::Kind::integer:
    case Token::Kind::real32:
    case Token::Kind::real64:
      return read_number();
    default:
      break;
  }
  if (cursor_.at('[')) return read_address();
  if (cursor_.at('{')) return read_vector();
  if (cursor_.at('-')) return read_number();
  if (cursor_.at('!')) {
    const int line = cursor_.take().line;
    Operand operand = read_named();
    if (operand.kind != Operand::Kind::reg) throw Error(line, "'!' without a register");
    operand.negated = true;
    return operand;
  }
  cursor_.unexpected("an operand");
}

Operand OperandReader::read_named() {
  const int line = cursor_.peek().line;
  const std::string_view name = cursor_.expect_word("an operand");
  if (name == "_") return of(Operand::Kind::sink);
  if (const auto index = scopes_.find(name)) {
    if (cursor_.at(Token::Kind::dotted))
      throw Error(line, "an element of " + quoted(name) + ": registers are scalars");
    Operand operand = of(Operand::Kind::reg);
    operand.index = *index;
    return operand;
  }
  if (name.front() == '%') {
    Operand operand = of(Operand::Kind::special);
    operand.text = name;
    if (cursor_.at(Token::Kind::dotted)) operand.text.append(".").append(cursor_.take().text);
    if (!is_special_register(operand.text)) throw Error(line, "no register " + quoted(operand.text));
    return operand;
  }
  if (function_names_.contains(name) || module_names_.contains(name)) {
    Operand operand = of(Operand::Kind::variable);
    operand.text = name;
    operand.offset = read_offset();
    return operand;
  }
  if (name == "WARP_SZ") {
    Operand operand = of(Operand::Kind::integer);
    operand.bits = 32;
    return operand;
  }
  throw Error(line, "nothing is named " + quoted(name));
}

Operand OperandReader::read_number() {
  const bool negative = cursor_.accept('-');
  const Token number = cursor_.peek();
  Operand operand;
  switch (number.kind) {
    case Token::Kind::integer:
      operand.kind = Operand::Kind::integer;
      operand.bits = negative ? negate(number) : number.bits;
      break;
    case Token::Kind::real32:
      operand.kind = Operand::Kind::real32;
      operand.bits = number.bits ^ (negative ? kSign >> 32 : 0);
      break;
    case Token::Kind::real64:
      operand.kind = Operand::Kind::real64;
      operand.bits = number.bits ^ (negative ? kSign : 0);
      break;
    default:
      cursor_.unexpected("a number");
  }
  cursor_.take();
  return operand;
}

/// `+8`, `+-8`, `-8`, or nothing: 0.
std::int64_t OperandReader::read_offset() {
  bool negative = false;
  if (cursor_.accept('+'))
    negative = cursor_.accept('-');
  else if (cursor_.accept('-'))
    negative = true;
  else
    return 0;
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto distance = static_cast<std::int64_t>(cursor_.expect_integer("an offset", kMost));
  return negative ? -distance : distance;
}

/// `[base+offset]`, or `[map, {x, y}]` of tensor copies, which has no offset.
Operand OperandReader::read_address() {
  const int line = cursor_.peek().line;
  cursor_.expect('[');
  Operand address = of(Operand::Kind::address);
  Operand base = cursor_.at(Token::Kind::integer) ? read_number() : read_named();
  switch (base.kind) {
    case Operand::Kind::variable:
      address.offset = std::exchange(base.offset, 0);
      break;
    case Operand::Kind::reg:
    case Operand::Kind::integer:
      address.offset = read_offset();
      break;
    default:
      throw Error(line, "an address that is neither register, variable nor integer");
  }
  address.elements.push_back(std::move(base));
  if (address.offset == 0 && cursor_.accept(',')) address.elements.push_back(read_vector());
  cursor_.expect(']');
  return address;
}

Operand OperandReader::read_vector() {
  cursor_.expect('{');
  Operand vector = of(Operand::Kind::vector);
  vector.elements.reserve(4);
  do {
    if (cursor_.at('{') || cursor_.at('[')) cursor_.unexpected("a register or a number in a vector");
    vector.elements.push_back(read_one());
  } while (cursor_.accept(','));
  cursor_.expect('}');
  return vector;
}

}  // namespace sparsekiln::ptx
