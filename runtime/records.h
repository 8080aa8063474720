#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

#include "autotune/record.h"
#include "cache/identity.h"
#include "cache/store.h"

namespace sparsekiln {

// Two kinds of entries of the store hold what tuning found. A *record* is all of it, one a problem, target
// and environment, as JSON. A *choice* is what `compile` reads: the plan of a record, under the same fields,
// and once more without the environment, for builds where there is none (a build server).

/// The fields by which problems and targets are told apart, as Record::problem has them.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> problem_fields(const Problem& problem,
                                                                              const Target& target);
[[nodiscard]] cache::Identity record_identity(const Record& record);

/// The tuned plan for a problem: of this environment, else of any; of the store, else of the records that
/// this library was built with. Nothing where there is none, or where its configs are not what this version
/// takes. Counts no hit and no miss.
[[nodiscard]] std::optional<Plan> chosen_plan(cache::Store& store, const Problem& problem,
                                              const Target& target,
                                              const std::optional<Environment>& environment);

/// The record of the same problem, target and environment; nothing where there is none that can be read.
[[nodiscard]] std::optional<Record> find_record(cache::Store& store, const Record& like);
/// The plan that was measured in this very environment.
[[nodiscard]] std::optional<Plan> own_plan(cache::Store& store, const Problem& problem, const Target& target,
                                           const Environment& environment);
/// Puts the choices of a record into the store: in place of those that are there (`replace`), or only where
/// there are none. A record without measured times has no choices: `compile` then takes the default plan.
void keep_choices(cache::Store& store, const Record& record, bool replace);
/// Puts a record and its choices into the store and replaces those that are there.
void publish(cache::Store& store, const Record& record);

/// All records of a store's folder that this version reads, in the order of their keys. `folder` as
/// Options::cache_dir. Changes nothing. Throws Error(`cache`) where the folder cannot be used.
[[nodiscard]] std::vector<Record> stored_records(const std::filesystem::path& folder);
/// JSON lines, one record each; blank lines are passed over. Throws Error(`io`), or (`invalid_argument`) with
/// file, line and what was expected.
[[nodiscard]] std::vector<Record> read_records(const std::filesystem::path& file);

}  // namespace sparsekiln
