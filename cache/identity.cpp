#include "cache/identity.h"

#include <charconv>
#include <cstddef>
#include <system_error>

namespace sparsekiln::cache {

// The canonical text, with one line for each field, so that it can be read in a dump of an entry:
//
//  identity := field*
//  field    := length(name) ' ' length(value) ' ' name '=' value '\n'
//  length   := bytes, in decimal without leading zeros
//
// The lengths make it unambiguous: names and values may contain any byte, also '=' and '\n'.

namespace {

/// Removes a length and the space after it from the front of `text`.
std::optional<std::size_t> take_length(std::string_view& text) {
  std::size_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  const auto digits = static_cast<std::size_t>(end - text.data());
  const bool leading_zero = digits > 1 && text.front() == '0';
  if (error != std::errc{} || leading_zero || digits == text.size() || *end != ' ') return std::nullopt;
  text.remove_prefix(digits + 1);
  return length;
}

/// Removes `length` bytes and the terminator after them from the front of `text`.
std::optional<std::string_view> take(std::string_view& text, std::size_t length, char terminator) {
  if (length >= text.size() || text[length] != terminator) return std::nullopt;
  const std::string_view taken = text.substr(0, length);
  text.remove_prefix(length + 1);
  return taken;
}

}  // namespace

Identity& Identity::add(std::string_view field, std::string_view value) {
  fields_.emplace_back(field, value);
  return *this;
}

std::string Identity::canonical() const {
  std::string text;
  for (const auto& [field, value] : fields_) {
    text += std::to_string(field.size()) + ' ' + std::to_string(value.size()) + ' ';
    text += field;
    text += '=';
    text += value;
    text += '\n';
  }
  return text;
}

std::optional<Identity> Identity::from_canonical(std::string_view text) {
  Identity identity;
  while (!text.empty()) {
    const auto name_length = take_length(text);
    if (!name_length) return std::nullopt;
    const auto value_length = take_length(text);
    if (!value_length) return std::nullopt;
    const auto field = take(text, *name_length, '=');
    if (!field) return std::nullopt;
    const auto value = take(text, *value_length, '\n');
    if (!value) return std::nullopt;
    identity.add(*field, *value);
  }
  return identity;
}

Digest Identity::key() const { return Digest::of(std::string_view(canonical())); }

}  // namespace sparsekiln::cache
