#include "runtime/stored_entry.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "autotune/record_json.h"
#include "compiler/build.h"
#include "compiler/recipe.h"
#include "runtime/build_job.h"
#include "runtime/records.h"
#include "runtime/stored_binary.h"
#include "runtime/stored_layout.h"
#include "runtime/stored_requests.h"

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

/// What a Binary was made for, where that can be known.
std::optional<BuildJob> job_for(const cache::Identity& identity, const cache::ReadOnlyStore& store) {
  try {
    const StoredRequest request = stored_request(store, identity);
    BuildJob job = job_without_plan(request.layout, request.options);
    job.plan = request.plan;
    return job;
  } catch (const Error&) {  // the layout is not there, or damaged itself
    return std::nullopt;
  }
}

void check_binaries(const cache::StoredEntry& entry, const cache::ReadOnlyStore& store) {
  const std::vector<Binary> binaries = deserialize_binaries(entry.identity, entry.payload);
  const std::optional<BuildJob> job = job_for(entry.identity, store);
  if (!job) return;
  for (const Binary& binary : binaries)
    if (const std::string wrong = wrong_numbers(binary, job->problem, job->target, job->plan); !wrong.empty())
      throw Error(ErrorKind::cache, "the numbers of a stored binary are wrong: " + wrong);
}

}  // namespace

bool check_payload(const cache::StoredEntry& entry, const cache::ReadOnlyStore& store) {
  const std::string_view what = value_of(entry.identity, "what");
  if (what == "record")
    return check_record(entry, {reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size()});
  if (what == "layout") {
    check_layout(entry);
    return true;
  }
  if (what != "binary" || value_of(entry.identity, "compiler") != compiler_digest()) return false;
  check_binaries(entry, store);
  return true;
}

}  // namespace sparsekiln
