#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/printable.h>

#include "autotune/record_json.h"
#include "cache/store.h"
#include "compiler/layout_file/disk.h"
#include "runtime/records.h"
#include "runtime/stores.h"
#include "tools/command.h"
#include "tools/options.h"

namespace sparsekiln::tools {
namespace {

struct RecordsArguments {
  std::filesystem::path file;
  std::filesystem::path cache_dir;
};

/// Nothing where there is no folder yet.
std::vector<Record> records_of(const std::filesystem::path& cache_dir) {
  const std::filesystem::path folder = cache_dir.empty() ? cache::Store::default_folder() : cache_dir;
  return std::filesystem::exists(folder) ? stored_records(folder) : std::vector<Record>{};
}

Answer export_records(const RecordsArguments& arguments) {
  const std::vector<Record> records = records_of(arguments.cache_dir);
  layout_file::replace_file(arguments.file, [&](const layout_file::Sink& write) {
    for (const Record& record : records) write(to_json(record) + '\n');
  });
  Answer answer;
  answer.json = {{"records", records.size()}, {"file", arguments.file.string()}};
  answer.text = fmt::format("wrote {} records to {}\n", records.size(), printable(arguments.file.string()));
  return answer;
}

Answer import_records(const RecordsArguments& arguments) {
  const std::vector<Record> records = read_records(arguments.file);
  const auto store = store_in(arguments.cache_dir);
  Answer answer;
  for (const Record& record : records) publish(*store, record);
  answer.json = {{"records", records.size()}, {"file", arguments.file.string()}};
  answer.text = fmt::format("took {} records from {}\n", records.size(), printable(arguments.file.string()));
  if (!store->on_disk()) {
    answer.warnings.push_back(fmt::format("they are not kept: {}", store->why()));
    answer.status = kFailed;
  }
  return answer;
}

void add(CLI::App& group, Invocation& invocation, const std::string& name, const std::string& about,
         Answer (*command)(const RecordsArguments&)) {
  CLI::App& app = *group.add_subcommand(name, about);
  const auto arguments = std::make_shared<RecordsArguments>();
  app.add_option("FILE", arguments->file, "JSON lines, one record each")->required();
  app.add_option("--cache-dir", arguments->cache_dir,
                 "folder of the store (else SPARSEKILN_CACHE_DIR, XDG_CACHE_HOME/sparsekiln, "
                 "~/.cache/sparsekiln)");
  add_json(app, invocation);
  app.callback([&invocation, arguments, command] {
    invocation.command = [arguments, command] { return command(*arguments); };
  });
}

}  // namespace

void add_records(CLI::App& root, Invocation& invocation) {
  CLI::App& group =
      *root.add_subcommand("records", "takes what `tune` has found from one machine to another");
  group.require_subcommand(1);
  add(group, invocation, "export", "writes all records of the store to a file", export_records);
  add(group, invocation, "import", "puts the records of a file into the store, replacing its own",
      import_records);
}

}  // namespace sparsekiln::tools
