#include "emulator/ptx/parse.h"

#include <limits>
#include <string>
#include <utility>

#include "emulator/ptx/parser.h"

namespace sparsekiln::ptx {
namespace {

constexpr std::size_t kMostText = std::size_t{1} << 30;
constexpr std::uint64_t kConstantBytes = 65536;  // PTX ISA 5.1.3: of .const variables in a module
constexpr std::uint64_t kMostNumber = std::numeric_limits<std::uint64_t>::max();

class ModuleParser {
 public:
  explicit ModuleParser(std::string_view text) : parse_(text), cursor_(parse_.cursor) {}

  Module parse() {
    parse_version();
    parse_target();
    parse_address_size();
    while (!cursor_.at(Token::Kind::end)) parse_directive();
    if (module().files.size() <= parse_.last_file) module().files.resize(parse_.last_file + std::size_t{1});
    return std::move(module());
  }

 private:
  Module& module() { return parse_.module; }

  void require(const char* directive) {
    if (!cursor_.accept_dotted(directive)) cursor_.unexpected(std::string("'.") + directive + "'");
  }

  /// `.version 9.0`
  void parse_version() {
    require("version");
    const Token version = cursor_.take();
    const std::string_view text = version.text;
    const bool form = version.kind == Token::Kind::real64 && text.size() == 3 && text[1] == '.';
    if (!form) throw Error(version.line, "not a version of PTX: " + quoted(text));
    module().version = (text[0] - '0') * 10 + (text[2] - '0');
  }

  /// `.target sm_90a`
  void parse_target() {
    require("target");
    const int line = cursor_.peek().line;
    std::string_view name = cursor_.expect_word("a target");
    const std::string_view whole = name;
    const auto refuse = [&] { throw Error(line, "not a target that this emulator knows: " + quoted(whole)); };
    if (!name.starts_with("sm_")) refuse();
    name.remove_prefix(3);
    if (name.ends_with('a')) {
      module().architecture_specific = true;
      name.remove_suffix(1);
    }
    if (name.size() < 2 || name.size() > 3) refuse();
    for (const char c : name) {
      if (c < '0' || c > '9') refuse();
      module().compute_capability = module().compute_capability * 10 + (c - '0');
    }
    while (cursor_.accept(',')) {
      const std::string_view option = cursor_.expect_word("an option of .target");
      if (option != "debug" &&
          option != "texmode_unified")  // DWARF is there; how textures are bound: none are
        throw Error(line, "an option of .target that is not implemented: " + quoted(option));
    }
  }

  void parse_address_size() {
    require("address_size");
    const int line = cursor_.peek().line;
    if (cursor_.expect_integer("an address size", kMostNumber) != 64)
      throw Error(line, "addresses of other than 64 bits are not implemented");
  }

  void parse_directive() {
    if (cursor_.accept(';')) return;
    if (!cursor_.at(Token::Kind::dotted)) cursor_.unexpected("a directive");
    const Token directive = cursor_.take();
    if (directive.text == "visible" || directive.text == "weak") return parse_linked(false);
    if (directive.text == "extern") return parse_linked(true);
    if (directive.text == "entry") return parse_entry();
    if (directive.text == "file") return parse_file();
    if (directive.text == "section") return skip_section();
    if (directive.text == "pragma") return skip_pragma(cursor_);
    if (const auto space = space_of(directive)) return parse_module_variables(*space, false);
    refuse_directive(directive);
  }

  /// What follows `.visible`, `.weak` or `.extern`.
  void parse_linked(bool external) {
    if (!cursor_.at(Token::Kind::dotted)) cursor_.unexpected("what is linked");
    const Token directive = cursor_.take();
    if (directive.text == "entry" && !external) return parse_entry();
    const auto space = space_of(directive);
    if (!space) refuse_directive(directive);
    parse_module_variables(*space, external);
  }

  void parse_module_variables(Space space, bool external) {
    const int line = cursor_.peek().line;
    if (space == Space::local) throw Error(line, "a .local variable outside of a kernel");
    for (Variable& variable : parse_variables(parse_, space, external)) {
      declare(variable.name, line);
      if (space == Space::constant) constant_bytes_ += variable.bytes;
      if (constant_bytes_ > kConstantBytes)
        throw Error(line, "more than " + std::to_string(kConstantBytes) + " bytes of .const variables");
      module().variables.push_back(std::move(variable));
    }
  }

  void parse_entry() {
    Function function = parse_function(parse_);
    declare(function.name, function.line);
    module().functions.push_back(std::move(function));
  }

  void declare(const std::string& name, int line) {
    if (!parse_.names.insert(name).second) throw Error(line, quoted(name) + " is declared twice");
  }

  /// `.file 1 "kernel.cu"[, time, size]` (11.3.2)
  void parse_file() {
    const std::uint64_t number = cursor_.expect_integer("a file's number", kMostFiles);
    const std::string_view path = cursor_.expect_string("a file's path");
    for (int i = 0; i < 2 && cursor_.accept(','); ++i)
      static_cast<void>(cursor_.expect_integer("a file's time and size", kMostNumber));
    if (module().files.size() <= number) module().files.resize(number + 1);
    module().files[number] = path;
  }

  /// `.section .debug_str { … }` (11.3.1): DWARF, which nothing here reads. It has no braces within.
  void skip_section() {
    const int line = cursor_.peek().line;
    if (!cursor_.at(Token::Kind::dotted) && !cursor_.at(Token::Kind::word))
      cursor_.unexpected("a section's name");
    cursor_.take();
    cursor_.expect('{');
    while (!cursor_.accept('}')) {
      if (cursor_.at(Token::Kind::end)) throw Error(line, "a section that does not end");
      if (cursor_.at('{')) cursor_.unexpected("'}'");
      cursor_.take();
    }
  }

  Parse parse_;
  Cursor& cursor_;
  std::uint64_t constant_bytes_ = 0;
};

}  // namespace

void refuse_directive(const Token& directive) {
  throw Error(directive.line, "not implemented: ." + std::string(directive.text.substr(0, 80)));
}

void skip_pragma(Cursor& cursor) {
  do static_cast<void>(cursor.expect_string("a pragma"));
  while (cursor.accept(','));
  cursor.expect(';');
}

Module parse(std::string_view text) {
  if (text.size() > kMostText) throw Error(1, "a text of more than a gibibyte");
  return ModuleParser(text).parse();
}

}  // namespace sparsekiln::ptx
