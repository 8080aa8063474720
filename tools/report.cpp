#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>
#include <sparsekiln/problem.h>

#include "cache/store.h"
#include "compiler/computation_fields.h"
#include "compiler/layout_file/disk.h"
#include "runtime/records.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/report_compare.h"
#include "tools/report_csv.h"
#include "tools/report_entry.h"
#include "tools/report_json.h"
#include "tools/report_page.h"
#include "tools/report_text.h"

namespace sparsekiln::tools {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::vector<fs::path> files;
  std::vector<fs::path> compared;  ///< none or two
  fs::path folder;                 ///< of the store; empty: the default one
  std::string operation;
  std::string dtype;
  std::string block;
  std::string target;
  std::string layout;
  fs::path html;
  std::string csv;  ///< a file, or "-"
  bool fail_on_regression = false;
};

/// Which records are wanted: of each field that is given, those with its value.
class Choice {
 public:
  explicit Choice(const ReportArguments& arguments) : target_(arguments.target), layout_(arguments.layout) {
    if (!arguments.operation.empty()) operation_ = name(parse_operation(arguments.operation));
    if (!arguments.dtype.empty()) dtype_ = name(parse_dtype(arguments.dtype));
    if (!arguments.block.empty()) block_ = to_string(parse_block_shape(arguments.block));
  }

  [[nodiscard]] bool takes(const Record& record) const {
    const auto is = [&](std::string_view field, const std::string& wanted) {
      return wanted.empty() || record.field(field) == wanted;
    };
    const std::string_view target = record.field("target");
    return is("operation", operation_) && is("dtype", dtype_) && is("block", block_) &&
           record.field("layout").starts_with(layout_) &&
           (is("target", target_) || target.starts_with(target_ + ":") ||
            (target_ == "cpu" && on_cpu(target)));
  }

 private:
  static bool on_cpu(std::string_view target) { return !target.starts_with("sm_"); }

  std::string operation_, dtype_, block_, target_, layout_;
};

std::vector<Record> chosen(std::vector<Record> records, const Choice& choice) {
  std::erase_if(records, [&](const Record& record) { return !choice.takes(record); });
  return records;
}

/// The records of a file of JSON lines, or of a folder of a store.
std::vector<Record> records_of(const fs::path& from, const Choice& choice) {
  return chosen(fs::is_directory(from) ? stored_records(from) : read_records(from), choice);
}

/// The records of all files, or of the store.
std::vector<Record> chosen_records(const ReportArguments& arguments, const Choice& choice,
                                   std::string& origin) {
  if (arguments.files.empty()) {
    const cache::Store store(arguments.folder);
    if (store.folder().empty()) throw Error(ErrorKind::cache, store.why());
    origin = store.folder().string();
    return fs::exists(store.folder()) ? chosen(stored_records(store.folder()), choice)
                                      : std::vector<Record>();
  }
  std::vector<Record> records;
  for (const fs::path& file : arguments.files) {
    std::vector<Record> more = records_of(file, choice);
    records.insert(records.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    origin += (origin.empty() ? "" : ", ") + file.string();
  }
  return records;
}

void write_text(const fs::path& file, std::string_view text) {
  layout_file::replace_file(file, [&](const layout_file::Sink& sink) { sink(text); });
}

Json page_data(const TuningGain& gain) {
  return {{"summary",
           {{"version", SPARSEKILN_VERSION}, {"tuned", gain.problems}, {"speedup", gain.geometric_mean}}},
          {"problems", Json::array()}};
}

void append_in_full(Json& problems, const std::vector<ReportEntry>& entries, const char* side) {
  for (const ReportEntry& entry : entries) {
    problems.push_back(describe_in_full(entry));
    if (side != nullptr) problems.back()["side"] = side;
  }
}

/// The files that were asked for beside the answer; CSV on standard output is the answer.
void write_files(const ReportArguments& arguments, const std::string& csv, const Json& page, Answer& answer) {
  if (!arguments.html.empty()) {
    write_text(arguments.html, report_page(page));
    answer.json["html"] = arguments.html.string();
    answer.text += fmt::format("page: {}\n", printable(arguments.html.string()));
  }
  if (arguments.csv == "-") {
    answer.text = csv;
  } else if (!arguments.csv.empty()) {
    write_text(arguments.csv, csv);
    answer.json["csv"] = arguments.csv;
    answer.text += fmt::format("table: {}\n", printable(arguments.csv));
  }
}

Answer report_all(const ReportArguments& arguments, const Choice& choice) {
  std::string origin;
  const std::vector<Record> records = chosen_records(arguments, choice, origin);
  const std::vector<ReportEntry> entries = entries_of(records);
  const TuningGain gain = tuning_gain(entries);
  Answer answer;
  answer.json = {{"from", origin}, {"problems", Json::array()}};
  for (const ReportEntry& entry : entries) answer.json["problems"].push_back(describe(entry));
  answer.json["tuned"] = gain.problems;
  answer.json["speedup"] = gain.geometric_mean;
  answer.text = entries.empty()
                    ? fmt::format(
                          "no such tuning records in '{}'; `sparsekiln tune L.npy --block 32 --batch "
                          "64` makes them\n",
                          printable(origin))
                    : report_text(entries);
  Json page = page_data(gain);
  append_in_full(page["problems"], entries, nullptr);
  write_files(arguments, report_csv(entries), page, answer);
  return answer;
}

Answer report_comparison(const ReportArguments& arguments, const Choice& choice) {
  const fs::path& a = arguments.compared[0];
  const fs::path& b = arguments.compared[1];
  const std::vector<Record> records_a = records_of(a, choice);
  const std::vector<Record> records_b = records_of(b, choice);
  const std::vector<ReportEntry> entries_a = entries_of(records_a);
  const std::vector<ReportEntry> entries_b = entries_of(records_b);
  const Comparison comparison = compare(entries_a, entries_b);
  Answer answer;
  answer.json = {{"a", a.string()}, {"b", b.string()}};
  answer.json.update(describe(comparison));
  answer.text = fmt::format("A is {}, B is {}\n", printable(a.string()), printable(b.string())) +
                comparison_text(comparison);
  std::vector<ReportEntry> all = entries_a;
  all.insert(all.end(), entries_b.begin(), entries_b.end());
  Json page = page_data(tuning_gain(all));
  page["comparison"] = answer.json;
  append_in_full(page["problems"], entries_a, "A");
  append_in_full(page["problems"], entries_b, "B");
  write_files(arguments, comparison_csv(comparison), page, answer);
  if (arguments.fail_on_regression && comparison.count(Change::regression) > 0) answer.status = kFailed;
  return answer;
}

Answer report(const ReportArguments& arguments, bool json) {
  if (json && arguments.csv == "-")
    throw Error(ErrorKind::invalid_argument,
                "report --json --csv -: both would be on standard output; name a file for the CSV");
  if (!arguments.compared.empty() && !arguments.files.empty())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("report '{}' --compare: --compare takes the two files by itself",
                            printable(arguments.files.front().string())));
  if (arguments.fail_on_regression && arguments.compared.empty())
    throw Error(ErrorKind::invalid_argument, "report --fail-on-regression: of what? Give --compare A B");
  const Choice choice(arguments);
  return arguments.compared.empty() ? report_all(arguments, choice) : report_comparison(arguments, choice);
}

}  // namespace

void add_report(CLI::App& root, Invocation& invocation) {
  CLI::App& app =
      *root.add_subcommand("report", "shows what tuning found: in the terminal, as a page, as a table");
  const auto arguments = std::make_shared<ReportArguments>();
  app.add_option("FILE", arguments->files,
                 "tuning records as JSON lines, or the folder of a store (else the store)");
  app.add_option("--cache-dir", arguments->folder,
                 "folder of the store (else SPARSEKILN_CACHE_DIR, XDG_CACHE_HOME/sparsekiln, "
                 "~/.cache/sparsekiln)");
  app.add_option("--op", arguments->operation,
                 fmt::format("only this operation: {}", computation_field("operation").choices()));
  app.add_option(
      "--dtype", arguments->dtype,
      fmt::format("only this type of activations and weight: {}", computation_field("dtype").choices()));
  app.add_option("--block", arguments->block, "only this block shape: 32, or OUTxIN such as 8x32");
  app.add_option("--target", arguments->target, "only this target: cpu, sm_90, sm_90:132 …");
  app.add_option("--layout", arguments->layout, "only layouts whose digest begins so");
  app.add_option("--html", arguments->html, "writes the report as one page that needs no network");
  app.add_option("--csv", arguments->csv, "writes a row a problem; - is standard output");
  app.add_option("--compare", arguments->compared,
                 "A B: compares the records of two files, or folders of stores, and marks regressions")
      ->expected(2);
  app.add_flag("--fail-on-regression", arguments->fail_on_regression,
               "with --compare: exit status 1 where B has a regression");
  add_json(app, invocation);
  app.callback([&invocation, arguments] {
    invocation.command = [arguments, json = invocation.json] { return report(*arguments, json); };
  });
}

}  // namespace sparsekiln::tools
