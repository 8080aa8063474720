#include "runtime/stored_entry.h"

#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "autotune/record_json.h"
#include "compiler/build.h"
#include "runtime/records.h"
#include "runtime/stored_binary.h"
#include "runtime/stored_layout.h"

namespace sparsekiln {
namespace {

std::string_view value_of(const cache::Identity& identity, std::string_view field) {
  for (const auto& [name, value] : identity.fields())
    if (name == field) return value;
  return {};
}

void check_layout(const cache::StoredEntry& entry) {
  const std::string found = deserialize_layout(entry.payload).digest().hex();
  if (found != value_of(entry.identity, "layout"))
    throw Error(ErrorKind::cache, fmt::format("a stored layout is another one: its digest is {}", found));
}

/// Whether it can be read: another version of this program may have written it.
bool check_record(const cache::StoredEntry& entry, std::string_view text) {
  std::optional<Record> record;
  try {
    record = parse_record(text);
  } catch (const Error&) {
    return false;
  }
  if (record_identity(*record) != entry.identity)
    throw Error(ErrorKind::cache, "a stored tuning record is of another problem or environment");
  return true;
}

}  // namespace

bool check_payload(const cache::StoredEntry& entry) {
  const std::string_view what = value_of(entry.identity, "what");
  if (what == "record")
    return check_record(entry, {reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size()});
  if (what == "layout") {
    check_layout(entry);
    return true;
  }
  if (what != "binary" || value_of(entry.identity, "compiler") != compiler_digest()) return false;
  static_cast<void>(deserialize_binaries(entry.identity, entry.payload));
  return true;
}

}  // namespace sparsekiln
