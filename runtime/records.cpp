#include "runtime/records.h"

#include <algorithm>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <sparsekiln/error.h>

#include "autotune/record_json.h"
#include "autotune/shipped_records.h"
#include "cache/read_only_store.h"
#include "compiler/build.h"
#include "runtime/request.h"

namespace sparsekiln {
namespace {

constexpr std::string_view kAny = "any";
/// Fields of a Binary's identity that do not tell problems and targets apart.
const std::set<std::string_view> kOfBinaries = {"what", "plan", "compiler"};

using Fields = std::vector<std::pair<std::string, std::string>>;

cache::Identity identity_of(std::string_view what, const Fields& fields, std::string_view environment) {
  cache::Identity identity;
  identity.add("what", what);
  for (const auto& [name, value] : fields) identity.add(name, value);
  identity.add("environment", environment);
  return identity;
}

cache::Identity choice_identity(const Fields& fields, std::string_view environment) {
  return identity_of("choice", fields, environment);
}

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A plan that this version takes for the problem; nothing else.
std::optional<Plan> usable(Plan plan, const Problem& problem, const Target& target) {
  if (plan.empty() || plan.back().up_to != problem.batch.bound()) return std::nullopt;
  if (plan.size() > 1 && !problem.batch.dynamic()) return std::nullopt;
  const ConfigCheck check(problem, target);
  const bool works = std::all_of(plan.begin(), plan.end(), [&](const RangedConfig& range) {
    // What changes how a kernel is called is the caller's to ask for.
    const bool as_called = !range.config.packed && range.config.table != TableForm::attached;
    return as_called && check.refusal(range.config).empty();
  });
  return works ? std::optional(std::move(plan)) : std::nullopt;
}

std::optional<Plan> stored_plan(cache::Store& store, const Fields& fields, std::string_view environment) {
  const auto payload = store.peek(choice_identity(fields, environment));
  if (!payload) return std::nullopt;
  try {
    return parse_plan(text_of(*payload));
  } catch (const Error&) {
    return std::nullopt;  // no version of this program wrote it
  }
}

/// The plan by the records that the library was built with; only those of this layout are read.
std::optional<Plan> shipped_plan(const Fields& fields, std::string_view layout,
                                 const std::optional<Environment>& environment) {
  std::optional<Plan> best;
  std::string_view rest = shipped_record_lines();
  for (std::size_t at = rest.find(layout); at != std::string_view::npos; at = rest.find(layout)) {
    const std::size_t begin = rest.rfind('\n', at) == std::string_view::npos ? 0 : rest.rfind('\n', at) + 1;
    const std::size_t end = std::min(rest.find('\n', at), rest.size());
    const std::string_view line = rest.substr(begin, end - begin);
    rest.remove_prefix(end);
    try {
      const Record record = parse_record(line);
      if (record.problem != fields) continue;
      if (environment && record.environment == *environment) return record.plan();
      if (!best) best = record.plan();
    } catch (const Error&) {  // of a version whose configs were others
    }
  }
  return best;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> problem_fields(const Problem& problem,
                                                                const Target& target) {
  Fields fields = sparsekiln::identity_of(problem, target, {}).fields();
  std::erase_if(fields, [](const auto& field) { return kOfBinaries.contains(field.first); });
  return fields;
}

cache::Identity record_identity(const Record& record) {
  return identity_of("record", record.problem, record.environment.to_string());
}

std::optional<Plan> chosen_plan(cache::Store& store, const Problem& problem, const Target& target,
                                const std::optional<Environment>& environment) {
  const Fields fields = problem_fields(problem, target);
  std::optional<Plan> plan;
  if (environment) plan = stored_plan(store, fields, environment->to_string());
  if (!plan) plan = stored_plan(store, fields, kAny);
  if (!plan) plan = shipped_plan(fields, problem.layout.digest().hex(), environment);
  return plan ? usable(std::move(*plan), problem, target) : std::nullopt;
}

std::optional<Record> find_record(cache::Store& store, const Record& like) {
  const auto payload = store.peek(record_identity(like));
  if (!payload) return std::nullopt;
  try {
    return parse_record(text_of(*payload));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<Plan> own_plan(cache::Store& store, const Problem& problem, const Target& target,
                             const Environment& environment) {
  auto plan = stored_plan(store, problem_fields(problem, target), environment.to_string());
  return plan ? usable(std::move(*plan), problem, target) : std::nullopt;
}

void keep_choices(cache::Store& store, const Record& record, bool replace) {
  if (!record.measured()) return;
  const std::vector<std::byte> plan = bytes_of(to_string(record.plan()));
  for (const std::string& environment : {record.environment.to_string(), std::string(kAny)}) {
    const cache::Identity identity = choice_identity(record.problem, environment);
    if (replace)
      store.put(identity, plan);
    else
      store.keep(identity, [&] { return plan; });
  }
}

void publish(cache::Store& store, const Record& record) {
  keep_choices(store, record, true);  // first: a record without them would not be tuned again
  store.put(record_identity(record), bytes_of(to_json(record)));
}

std::vector<Record> stored_records(const std::filesystem::path& folder) {
  const auto layer = cache::open_read_only_store(folder.empty() ? cache::Store::default_folder() : folder);
  std::vector<Record> records;
  for (const cache::Identity& identity : layer->identities()) {
    if (identity.fields().empty() || identity.fields().front().second != "record") continue;
    const auto payload = layer->get(identity);
    if (!payload) continue;
    try {
      records.push_back(parse_record(text_of(*payload)));
    } catch (const Error&) {  // another version's
    }
  }
  return records;
}

}  // namespace sparsekiln
