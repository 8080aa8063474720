#include "tools/report_csv.h"

#include <array>
#include <optional>

#include <fmt/format.h>
#include <sparsekiln/printable.h>

namespace sparsekiln::tools {
namespace {

using Row = std::vector<std::string>;

std::string cell(std::string_view foreign) {
  const std::string text = printable(foreign);
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return quoted + "\"";
}

std::string line(const Row& row) {
  std::string text;
  for (const std::string& one : row) text += cell(one) + ",";
  text.back() = '\r';
  return text + "\n";
}

std::string number(std::optional<double> value) { return value ? fmt::format("{}", *value) : ""; }
std::string word(bool value) { return value ? "true" : "false"; }

void append_time(Row& row, const Candidate* candidate) {
  const auto time = candidate == nullptr ? std::nullopt : candidate->time_us();
  row.push_back(time ? number(time->median) : "");
  row.push_back(time ? number(time->p20) : "");
  row.push_back(time ? number(time->p80) : "");
  row.push_back(time ? word(candidate->outcome == Outcome::measured) : "");
}

constexpr std::array kProblemFields = {"operation", "layout", "block", "batch",    "dtype",       "out_dtype",
                                       "math",      "order",  "gates", "epilogue", "convolution", "target"};

Row problem_names() {
  Row row(kProblemFields.begin(), kProblemFields.end());
  row.insert(row.end(), {"n", "rows", "cols", "density"});
  return row;
}

Row problem_cells(const ReportEntry& entry) {
  Row row;
  for (const char* const field : kProblemFields) row.emplace_back(entry.record->field(field));
  const LayoutSummary& layout = entry.record->layout;
  row.insert(row.end(), {fmt::format("{}", entry.contest->n), fmt::format("{}", layout.rows),
                         fmt::format("{}", layout.cols), number(layout.density())});
  return row;
}

Row entry_names() {
  Row row = problem_names();
  row.insert(row.end(), {"device",
                         "workers",
                         "driver",
                         "policy",
                         "best_config",
                         "best_us",
                         "best_p20_us",
                         "best_p80_us",
                         "best_measured",
                         "default_config",
                         "default_us",
                         "default_p20_us",
                         "default_p80_us",
                         "default_measured",
                         "speedup",
                         "margin",
                         "tie",
                         "floor_us",
                         "floor_share",
                         "dense_us",
                         "speedup_over_dense",
                         "tried",
                         "failed",
                         "pruned",
                         "untried",
                         "compile_ms",
                         "seconds",
                         "compiler"});
  return row;
}

Row entry_cells(const ReportEntry& entry) {
  const Record& record = *entry.record;
  const Standing& standing = entry.standing;
  const Tally& tally = entry.tally;
  Row row = problem_cells(entry);
  row.insert(row.end(), {record.environment.device, fmt::format("{}", record.environment.workers),
                         record.environment.driver, record.environment.policy,
                         standing.best == nullptr ? "" : to_string(standing.best->config)});
  append_time(row, standing.best);
  row.push_back(to_string(entry.contest->default_config));
  append_time(row, entry.contest->find(entry.contest->default_config));
  row.insert(row.end(), {standing.standard == nullptr ? "" : number(standing.speedup),
                         standing.second == nullptr ? "" : number(standing.margin), word(standing.tie),
                         number(entry.contest->floor_us), number(entry.floor_share()),
                         entry.dense ? number(entry.dense->us) : "", number(entry.speedup_over_dense()),
                         fmt::format("{}", tally.tried), fmt::format("{}", tally.failed),
                         fmt::format("{}", tally.pruned), fmt::format("{}", tally.untried),
                         number(tally.compile_ms), number(record.seconds), record.compiler});
  return row;
}

}  // namespace

std::string report_csv(const std::vector<ReportEntry>& entries) {
  std::string text = line(entry_names());
  for (const ReportEntry& entry : entries) text += line(entry_cells(entry));
  return text;
}

std::string comparison_csv(const Comparison& comparison) {
  Row names = problem_names();
  for (const std::string side : {"a", "b"})
    for (const char* const what : {"_device", "_config", "_us", "_p20_us", "_p80_us", "_measured"})
      names.push_back(side + what);
  names.insert(names.end(), {"ratio", "verdict"});
  std::string text = line(names);
  for (const ComparedPair& pair : comparison.pairs) {
    Row row = problem_cells(pair.a != nullptr ? *pair.a : *pair.b);
    for (const ReportEntry* const side : {pair.a, pair.b}) {
      const Candidate* const best = side == nullptr ? nullptr : side->standing.best;
      row.push_back(side == nullptr ? "" : side->record->environment.device);
      row.push_back(best == nullptr ? "" : to_string(best->config));
      append_time(row, best);
    }
    row.push_back(number(pair.ratio));
    row.emplace_back(name(pair.check_result));
    text += line(row);
  }
  return text;
}

}  // namespace sparsekiln::tools
