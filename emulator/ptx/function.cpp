#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "emulator/ptx/parser.h"

namespace sparsekiln::ptx {
namespace {

constexpr std::uint64_t kMostThreads =
    1024;  // of a block, on every architecture (CUDA programming guide, 5.1)
constexpr std::uint64_t kMostLine = std::numeric_limits<std::uint32_t>::max();

/// `128, 1, 1`: one to three sizes, the rest 1.
struct Extent {
  std::uint32_t size[3] = {1, 1, 1};
};
Extent parse_extent(Cursor& cursor, const char* what) {
  Extent extent;
  const int line = cursor.peek().line;
  int count = 0;
  std::uint64_t product = 1;
  do {
    if (count == 3) cursor.unexpected("at most three sizes");
    extent.size[count] = static_cast<std::uint32_t>(cursor.expect_integer(what, kMostThreads));
    product *= extent.size[count++];
  } while (cursor.accept(','));
  if (product == 0 || product > kMostThreads)
    throw Error(line, std::string(what) + " asks for " + std::to_string(product) + " threads, not 1 to " +
                          std::to_string(kMostThreads));
  return extent;
}

class FunctionParser {
 public:
  explicit FunctionParser(Parse& parse) : parse_(parse), cursor_(parse.cursor) {}

  Function parse() {
    function_.line = cursor_.peek().line;
    function_.name = cursor_.expect_word("a kernel's name");
    function_.parameters = parse_parameters(cursor_);
    for (const Parameter& parameter : function_.parameters) declare(parameter.name, function_.line);
    parse_limits();
    if (cursor_.at(';')) throw Error(cursor_.peek().line, "a kernel that is declared only");
    parse_body();
    return std::move(function_);
  }

 private:
  /// What stands between the parameters and the body (11.4).
  void parse_limits() {
    while (cursor_.at(Token::Kind::dotted)) {
      const Token directive = cursor_.take();
      if (directive.text == "maxntid") {
        const Extent extent = parse_extent(cursor_, ".maxntid");
        function_.max_threads = extent.size[0] * extent.size[1] * extent.size[2];
      } else if (directive.text == "reqntid") {
        const Extent extent = parse_extent(cursor_, ".reqntid");
        std::copy_n(extent.size, 3, function_.required_threads);
      } else if (directive.text == "reqnctapercluster") {
        std::copy_n(parse_extent(cursor_, ".reqnctapercluster").size, 3, function_.required_cluster);
      } else if (directive.text == "explicitcluster") {
        function_.needs_cluster = true;
      } else if (directive.text == "maxnreg") {
        function_.max_registers = parse_limit();
      } else if (directive.text == "minnctapersm") {
        function_.min_blocks = parse_limit();
      } else if (directive.text == "maxnctapersm" || directive.text == "maxclusterrank") {
        static_cast<void>(parse_limit());  // advice to ptxas
      } else if (directive.text == "pragma") {
        skip_pragma(cursor_);
      } else {
        refuse_directive(directive);
      }
    }
  }

  std::uint32_t parse_limit() {
    return static_cast<std::uint32_t>(cursor_.expect_integer("a limit", kMostLine));
  }

  void parse_body() {
    const int line = cursor_.peek().line;
    cursor_.expect('{');
    scopes_.open(line);
    while (scopes_.depth() != 0) parse_element();
  }

  void parse_element() {
    const Token& next = cursor_.peek();
    switch (next.kind) {
      case Token::Kind::dotted:
        return parse_directive();
      case Token::Kind::word:
        return parse_label_or_statement();
      case Token::Kind::mark:
        break;
      default:
        cursor_.unexpected("a statement");
    }
    if (next.mark == '{') {
      scopes_.open(cursor_.take().line);
    } else if (next.mark == '}') {
      scopes_.close();
      cursor_.take();
    } else if (next.mark == '@') {
      parse_guarded();
    } else if (!cursor_.accept(';')) {
      cursor_.unexpected("a statement");
    }
  }

  void parse_directive() {
    const Token directive = cursor_.take();
    if (directive.text == "loc") return parse_place();
    if (directive.text == "reg") return parse_registers();
    if (directive.text == "pragma") return skip_pragma(cursor_);
    const auto space = space_of(directive);
    if (!space || (*space != Space::shared && *space != Space::local)) refuse_directive(directive);
    const int line = cursor_.peek().line;
    for (Variable& variable : parse_variables(parse_, *space, false)) {
      declare(variable.name, line);
      function_.variables.push_back(std::move(variable));
    }
  }

  /// `.loc 1 12 5[, function_name label[+offset]][, inlined_at 1 20 7]` (11.3.3). No semicolon ends it.
  void parse_place() {
    place_.file = static_cast<std::uint32_t>(cursor_.expect_integer("a file's number", kMostFiles));
    place_.line = static_cast<std::uint32_t>(cursor_.expect_integer("a line", kMostLine));
    static_cast<void>(cursor_.expect_integer("a column", kMostLine));
    parse_.last_file = std::max(parse_.last_file, place_.file);
    while (cursor_.accept(',')) {
      const std::string_view attribute = cursor_.expect_word("an attribute of .loc");
      if (attribute == "function_name") {
        static_cast<void>(cursor_.expect_word("a label"));
        if (cursor_.accept('+')) static_cast<void>(cursor_.expect_integer("an offset", kMostLine));
      } else if (attribute == "inlined_at") {
        for (const char* what : {"a file's number", "a line", "a column"})
          static_cast<void>(cursor_.expect_integer(what, kMostLine));
      } else {
        throw Error(cursor_.peek().line, "not an attribute of .loc: " + quoted(attribute));
      }
    }
  }

  /// `.reg .b32 %r<10>, t;`
  void parse_registers() {
    constexpr std::uint64_t kMostRegisters = std::numeric_limits<std::uint32_t>::max();
    const Type type = parse_declared_type(cursor_);
    do {
      const int line = cursor_.peek().line;
      const std::string_view name = cursor_.expect_word("a register's name");
      if (name == "_") throw Error(line, "not a register's name: '_'");
      if (cursor_.accept('<')) {
        scopes_.declare_range(name, cursor_.expect_integer("a number of registers", kMostRegisters), type,
                              line);
        cursor_.expect('>');
      } else {
        scopes_.declare(name, type, line);
      }
    } while (cursor_.accept(','));
    cursor_.expect(';');
  }

  void parse_label_or_statement() {
    const Token word = cursor_.take();
    if (cursor_.accept(':'))
      scopes_.define_label(word.text, word.line);
    else
      parse_statement(Statement{}, word);
  }

  void parse_guarded() {
    Statement statement;
    cursor_.expect('@');
    statement.guarded = true;
    statement.guard_negated = cursor_.accept('!');
    const int line = cursor_.peek().line;
    const std::string_view name = cursor_.expect_word("a predicate");
    const auto guard = scopes_.find(name);
    if (!guard) throw Error(line, "no register " + quoted(name));
    statement.guard = *guard;
    if (function_.registers[*guard].type != Type::pred) throw Error(line, quoted(name) + " is no predicate");
    if (!cursor_.at(Token::Kind::word)) cursor_.unexpected("an instruction");
    const Token opcode = cursor_.take();
    parse_statement(std::move(statement), opcode);
  }

  void parse_statement(Statement statement, const Token& opcode) {
    statement.line = opcode.line;
    statement.source = place_;
    statement.opcode = opcode.text;
    if (opcode.text == "call" || opcode.text == "brx")
      throw Error(opcode.line, "not implemented: " + statement.opcode);
    while (cursor_.at(Token::Kind::dotted)) statement.modifiers.emplace_back(cursor_.take().text);
    if (opcode.text == "bra")
      parse_target(statement);
    else if (!cursor_.at(';'))
      do statement.operands.push_back(operands_.read());
      while (cursor_.accept(','));
    cursor_.expect(';');
    function_.statements.push_back(std::move(statement));
  }

  void parse_target(Statement& statement) {
    const int line = cursor_.peek().line;
    scopes_.use_label(cursor_.expect_word("a label"), 0, line);
    statement.operands.emplace_back().kind = Operand::Kind::label;
  }

  void declare(const std::string& name, int line) {
    if (parse_.names.contains(name) || !names_.insert(name).second)
      throw Error(line, quoted(name) + " is declared twice");
  }

  Parse& parse_;
  Cursor& cursor_;
  Function function_;
  Scopes scopes_{function_};
  NameSet names_;  ///< of parameters and variables
  OperandReader operands_{cursor_, scopes_, parse_.names, names_};
  SourcePlace place_;
};

}  // namespace

Function parse_function(Parse& parse) { return FunctionParser(parse).parse(); }

}  // namespace sparsekiln::ptx
