#include "compiler/cuda/declarations.h"

#include <fmt/format.h>

namespace sparsekiln::cuda {
namespace {

std::string after(std::string_view comment) {
  return comment.empty() ? "\n" : fmt::format("  // {}\n", comment);
}

}  // namespace

void Declarations::type(std::string_view name, std::string_view definition, std::string_view comment) {
  types_ += fmt::format("  using {} = {};{}", name, definition, after(comment));
}

void Declarations::number(std::string_view name, std::int64_t value, std::string_view comment) {
  numbers_ += fmt::format("    {} = {},{}", name, value, after(comment));
}

void Declarations::flag(std::string_view name, bool value, std::string_view comment) {
  flags_ += fmt::format("    {} = {},{}", name, value, after(comment));
}

void Declarations::append(const Declarations& others) {
  types_ += others.types_;
  numbers_ += others.numbers_;
  flags_ += others.flags_;
}

std::string Declarations::text() const {
  return fmt::format(
      "{}"
      "  enum : int {{\n"
      "{}"
      "  }};\n"
      "  enum : bool {{\n"
      "{}"
      "  }};\n",
      types_, numbers_, flags_);
}

}  // namespace sparsekiln::cuda
