#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "emulator/ptx/module.h"

namespace sparsekiln::ptx {

/// A token of PTX (PTX ISA 4.3 to 4.5). `text` refers to the module's text.
struct Token {
  enum class Kind : std::uint8_t {
    end,
    word,     ///< an identifier, or an opcode without its modifiers: `%r1`, `ld`, `$L__BB0_2`, `_`
    dotted,   ///< a directive or a modifier, `text` without its dot: `version`, `L2::128B`
    integer,  ///< `bits`; no sign
    real32,   ///< 0fXXXXXXXX: `bits`
    real64,   ///< 0dXXXXXXXXXXXXXXXX, or with a decimal point: `bits`
    string,   ///< `text` without its quotes
    mark,     ///< one character of punctuation
  };
  Kind kind = Kind::end;
  char mark = 0;
  int line = 1;
  std::string_view text;  ///< a number's digits as well
  std::uint64_t bits = 0;
};

/// The tokens of a text, one after the other. Comments and white space are skipped.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}
  /// At the end: Kind::end, as often as asked. Throws Error.
  [[nodiscard]] Token next();

 private:
  void skip_blank();
  [[nodiscard]] char ahead(std::ptrdiff_t distance) const {
    return distance < end_ - at_ ? at_[distance] : '\0';
  }
  void read_dotted(Token& token);
  void read_number(Token& token);
  void read_prefixed(Token& token, int base);
  void read_image(Token& token, Token::Kind kind, int digits);
  void read_decimal(Token& token);
  void read_string(Token& token);

  const char* at_;
  const char* end_;
  int line_ = 1;
};

/// One token ahead of the reader, and what is expected of it.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : lexer_(text), ahead_(lexer_.next()) {}

  [[nodiscard]] const Token& peek() const noexcept { return ahead_; }
  [[nodiscard]] bool at(char mark) const noexcept {
    return ahead_.kind == Token::Kind::mark && ahead_.mark == mark;
  }
  [[nodiscard]] bool at(Token::Kind kind) const noexcept { return ahead_.kind == kind; }
  [[nodiscard]] bool at_dotted(std::string_view name) const noexcept {
    return ahead_.kind == Token::Kind::dotted && ahead_.text == name;
  }

  Token take() {
    const Token token = ahead_;
    ahead_ = lexer_.next();
    return token;
  }
  /// Takes the mark if it is next.
  bool accept(char mark);
  bool accept_dotted(std::string_view name);

  void expect(char mark);
  /// An identifier; `what` says in the message what it would name.
  [[nodiscard]] std::string_view expect_word(const char* what);
  /// An integer from 0 to `most`.
  [[nodiscard]] std::uint64_t expect_integer(const char* what, std::uint64_t most);
  [[nodiscard]] std::string_view expect_string(const char* what);

  /// Refuses the next token: "expected …, found …".
  [[noreturn]] void unexpected(const std::string& expected) const;

 private:
  Lexer lexer_;
  Token ahead_;
};

/// A name for a message: in quotes, shortened if it is long, without characters that are not printable.
[[nodiscard]] std::string quoted(std::string_view name);

}  // namespace sparsekiln::ptx
