#pragma once

#include <string>
#include <string_view>

#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

namespace sparsekiln {

/// A row of a table that gives an enumeration its texts. Any struct with `value` and `name` will do.
template <typename T>
struct Named {
  T value;
  std::string_view name;
};
template <typename T>
Named(T, const char*) -> Named<T>;

/// The text of a value; `table` holds every value.
template <typename Table, typename T>
[[nodiscard]] std::string_view name_in(const Table& table, T value) {
  for (const auto& row : table)
    if (row.value == value) return row.name;
  return "unknown";
}

/// The value of a text. Throws `invalid_argument` that lists what the table knows; `what` is "data type" or
/// the like.
template <typename Table>
[[nodiscard]] auto parse_in(const Table& table, std::string_view text, std::string_view what) {
  std::string known;
  for (const auto& row : table) {
    if (row.name == text) return row.value;
    known += known.empty() ? "" : ", ";
    known += row.name;
  }
  throw Error(ErrorKind::invalid_argument,
              std::string(what) + " '" + printable(text) + "' is not known: one of " + known);
}

}  // namespace sparsekiln
