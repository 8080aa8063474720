#include "emulator/ptx/token.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

namespace sparsekiln::ptx {
namespace {

enum Class : std::uint8_t { kBlank = 1, kStart = 2, kInside = 4, kDigit = 8, kHex = 16, kMark = 32 };

constexpr std::array<std::uint8_t, 256> classes() {
  std::array<std::uint8_t, 256> table{};
  for (const char c : std::string_view(" \t\r\f\v\n")) table[static_cast<unsigned char>(c)] = kBlank;
  for (int c = 'a'; c <= 'z'; ++c) table[c] = table[c - 'a' + 'A'] = kStart | kInside;
  for (int c = 'a'; c <= 'f'; ++c) table[c] = table[c - 'a' + 'A'] = kStart | kInside | kHex;
  for (int c = '0'; c <= '9'; ++c) table[c] = kInside | kDigit | kHex;
  table['_'] = table['$'] = kStart | kInside;
  table['%'] = kStart;
  for (const char c : std::string_view("{}()[]<>,;:+-!|@=~*&^?/"))
    table[static_cast<unsigned char>(c)] = kMark;
  return table;
}
constexpr std::array<std::uint8_t, 256> kClasses = classes();

bool is(char c, int wanted) { return (kClasses[static_cast<unsigned char>(c)] & wanted) != 0; }

int digit_of(char c) {
  if (c <= '9') return c - '0';
  return (c | 0x20) - 'a' + 10;
}

std::string_view between(const char* first, const char* last) {
  return {first, static_cast<std::size_t>(last - first)};
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::end:
      return "the end of the text";
    case Token::Kind::dotted:
      return quoted("." + std::string(token.text.substr(0, 80)));
    case Token::Kind::string:
      return "the string " + quoted(token.text);
    default:
      return quoted(token.text);
  }
}

}  // namespace

std::string quoted(std::string_view name) {
  constexpr std::size_t kMost = 80;
  std::string out = "'";
  for (const char c : name.substr(0, kMost)) out += c >= ' ' && c <= '~' ? c : '?';
  out += name.size() > kMost ? "…'" : "'";
  return out;
}

void Lexer::skip_blank() {
  while (at_ != end_) {
    if (*at_ == '\n') {
      ++line_;
      ++at_;
    } else if (is(*at_, kBlank)) {
      ++at_;
    } else if (*at_ == '/' && ahead(1) == '/') {
      const void* newline = std::memchr(at_, '\n', static_cast<std::size_t>(end_ - at_));
      at_ = newline != nullptr ? static_cast<const char*>(newline) : end_;
    } else if (*at_ == '/' && ahead(1) == '*') {
      const auto close = between(at_ + 2, end_).find("*/");
      if (close == std::string_view::npos) throw Error(line_, "a comment that does not end");
      line_ += static_cast<int>(std::count(at_ + 2, at_ + 2 + close, '\n'));
      at_ += close + 4;
    } else {
      return;
    }
  }
}

Token Lexer::next() {
  skip_blank();
  Token token;
  token.line = line_;
  if (at_ == end_) return token;
  const char* first = at_;
  if (is(*at_, kStart)) {
    ++at_;
    while (at_ != end_ && is(*at_, kInside)) ++at_;
    token.kind = Token::Kind::word;
    token.text = between(first, at_);
    if (token.text == "%") throw Error(line_, "a '%' that no name follows");
  } else if (is(*at_, kDigit)) {
    read_number(token);
    if (at_ != end_ && is(*at_, kInside)) throw Error(line_, "a number that goes on as a name");
    token.text = between(first, at_);
  } else if (*at_ == '.') {
    read_dotted(token);
  } else if (*at_ == '"') {
    read_string(token);
  } else if (is(*at_, kMark)) {
    token.kind = Token::Kind::mark;
    token.mark = *at_++;
    token.text = between(first, at_);
  } else {
    throw Error(line_,
                "a character that PTX does not have: " + std::to_string(static_cast<unsigned char>(*at_)));
  }
  return token;
}

/// `.L2::cache_hint` is one token: its colons stand without spaces.
void Lexer::read_dotted(Token& token) {
  const char* first = ++at_;
  for (;;) {
    while (at_ != end_ && is(*at_, kInside)) ++at_;
    if (ahead(0) != ':' || ahead(1) != ':' || !is(ahead(2), kInside)) break;
    at_ += 2;
  }
  token.kind = Token::Kind::dotted;
  token.text = between(first, at_);
  if (token.text.empty()) throw Error(line_, "a '.' that no name follows");
}

/// 4.5.1, 4.5.2: 0x, 0b, octal with a leading 0, 0f and 0d images, decimal integers and reals.
void Lexer::read_number(Token& token) {
  if (*at_ != '0') return read_decimal(token);
  switch (ahead(1)) {
    case 'x':
    case 'X':
      at_ += 2;
      return read_prefixed(token, 16);
    case 'b':
    case 'B':
      at_ += 2;
      return read_prefixed(token, 2);
    case 'f':
    case 'F':
      return read_image(token, Token::Kind::real32, 8);
    case 'd':
    case 'D':
      return read_image(token, Token::Kind::real64, 16);
    default:
      break;
  }
  const char* digits = at_;
  while (digits != end_ && is(*digits, kDigit)) ++digits;
  const bool real = digits != end_ && (*digits == '.' || *digits == 'e' || *digits == 'E');
  if (real || digits - at_ == 1) return read_decimal(token);
  read_prefixed(token, 8);
}

/// Digits of `base`, then perhaps `U`.
void Lexer::read_prefixed(Token& token, int base) {
  const char* first = at_;
  std::uint64_t value = 0;
  for (; at_ != end_ && is(*at_, kHex) && digit_of(*at_) < base; ++at_) {
    if (value > std::numeric_limits<std::uint64_t>::max() / base)
      throw Error(line_, "an integer of more than 64 bits");
    value = value * base + digit_of(*at_);
  }
  if (at_ == first) throw Error(line_, "a number without digits");
  if (ahead(0) == 'U') ++at_;
  token.kind = Token::Kind::integer;
  token.bits = value;
}

void Lexer::read_image(Token& token, Token::Kind kind, int digits) {
  at_ += 2;
  for (int i = 0; i < digits; ++i, ++at_) {
    if (!is(ahead(0), kHex)) throw Error(line_, "a real's image has too few digits");
    token.bits = token.bits << 4 | digit_of(*at_);
  }
  token.kind = kind;
}

void Lexer::read_decimal(Token& token) {
  const char* digits = at_;
  while (digits != end_ && is(*digits, kDigit)) ++digits;
  const bool fraction = end_ - digits > 1 && *digits == '.' && is(digits[1], kDigit);
  const bool exponent = digits != end_ && (*digits == 'e' || *digits == 'E');
  if (fraction || exponent) {
    double value = 0;
    const auto [stop, error] = std::from_chars(at_, end_, value);
    if (error != std::errc()) throw Error(line_, "a real out of the range of 64 bits");
    at_ = stop;
    token.kind = Token::Kind::real64;
    token.bits = std::bit_cast<std::uint64_t>(value);
    return;
  }
  const auto [stop, error] = std::from_chars(at_, digits, token.bits);
  if (error != std::errc()) throw Error(line_, "an integer of more than 64 bits");
  at_ = stop;
  if (ahead(0) == 'U') ++at_;
  token.kind = Token::Kind::integer;
}

void Lexer::read_string(Token& token) {
  const char* first = ++at_;
  while (at_ != end_ && *at_ != '"' && *at_ != '\n') ++at_;
  if (ahead(0) != '"') throw Error(line_, "a string that does not end");
  token.kind = Token::Kind::string;
  token.text = between(first, at_);
  ++at_;
}

bool Cursor::accept(char mark) {
  if (!at(mark)) return false;
  ahead_ = lexer_.next();
  return true;
}

bool Cursor::accept_dotted(std::string_view name) {
  if (!at_dotted(name)) return false;
  ahead_ = lexer_.next();
  return true;
}

void Cursor::expect(char mark) {
  if (!accept(mark)) unexpected(std::string("'") + mark + "'");
}

std::string_view Cursor::expect_word(const char* what) {
  if (!at(Token::Kind::word)) unexpected(what);
  return take().text;
}

std::uint64_t Cursor::expect_integer(const char* what, std::uint64_t most) {
  if (!at(Token::Kind::integer)) unexpected(what);
  if (ahead_.bits > most)
    throw Error(ahead_.line, std::string(what) + " is " + std::to_string(ahead_.bits) + ", more than " +
                                 std::to_string(most));
  return take().bits;
}

std::string_view Cursor::expect_string(const char* what) {
  if (!at(Token::Kind::string)) unexpected(what);
  return take().text;
}

void Cursor::unexpected(const std::string& expected) const {
  throw Error(ahead_.line, "expected " + expected + ", found " + describe(ahead_));
}

}  // namespace sparsekiln::ptx
