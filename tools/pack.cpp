#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "cache/pack.h"
#include "cache/read_only_store.h"
#include "compiler/build.h"
#include "runtime/stored_binary.h"
#include "runtime/stored_entry.h"
#include "tools/command.h"
#include "tools/entry_report.h"
#include "tools/options.h"
#include "tools/publish.h"

namespace sparsekiln::tools {
namespace {

namespace fs = std::filesystem;
using cache::Pack;
using cache::PackRow;

struct PackArguments {
  fs::path file;  ///< of verbs that take one pack
  std::vector<fs::path> files;
  std::vector<std::string> keys;
  bool all = false;
  fs::path output;
};

Answer list(const PackArguments& arguments) {
  const auto pack = Pack::open(arguments.file);
  Answer answer;
  answer.json = {{"pack", pack->file().string()}, {"bytes", pack->bytes()}, {"entries", Json::array()}};
  std::vector<std::vector<std::string>> rows{{"KEY", "OPERATION", "LAYOUT", "GRID", "BLOCK", "BATCH", "DTYPE",
                                              "CONVOLUTION", "TARGET", "NVRTC", "BYTES", "PLAN"}};
  std::size_t other_compiler = 0;
  for (const PackRow& row : pack->rows()) {
    const cache::Identity identity = pack->identity(row);
    const auto versions = nvrtc_versions(identity, cache::payload_beginning(pack->stored(row)));
    answer.json["entries"].push_back({{"key", row.key.hex()},
                                      {"bytes", row.size},
                                      {"nvrtc", versions},
                                      {"identity", describe_identity(identity)}});
    other_compiler += field(identity, "compiler") != compiler_digest() ? 1 : 0;
    rows.push_back({row.key.hex(), field(identity, "operation"), field(identity, "layout").substr(0, 8),
                    field(identity, "grid"), field(identity, "block"), field(identity, "batch"),
                    field(identity, "dtype"), field(identity, "convolution"), field(identity, "target"),
                    fmt::format("{}", fmt::join(versions, ", ")), fmt::format("{}", row.size),
                    field(identity, "plan")});
  }
  answer.text = table(rows);
  answer.text += fmt::format("{} entries, {} bytes\n", pack->rows().size(), pack->bytes());
  answer.json["of_this_compiler"] = pack->rows().size() - other_compiler;
  if (other_compiler != 0)
    answer.warnings.push_back(fmt::format(
        "{} of {} entries were made by another version of the compiler than this program's, which will not "
        "use them",
        other_compiler, pack->rows().size()));
  return answer;
}

/// Whether an entry is known to be the kernel that it says it is. Throws Error(cache), naming it, where it is
/// not.
bool check_entry(const Pack& pack, const PackRow& row) {
  const cache::StoredEntry entry = pack.entry(row);
  try {
    return check_payload(entry, *cache::open_read_only_store(pack.file()));
  } catch (const Error& error) {
    throw Error(ErrorKind::cache,
                fmt::format("cannot use the pack '{}': entry {} at byte {}: {}",
                            printable(pack.file().string()), row.key.hex(), row.offset, error.what()));
  }
}

Answer verify(const PackArguments& arguments) {
  Answer answer;
  answer.json["packs"] = Json::array();
  for (const fs::path& file : arguments.files) {
    Json bad = Json::array();
    std::size_t entries = 0;
    std::size_t unknown = 0;
    std::size_t bytes = 0;
    const auto wrong = [&](const std::string& message) {
      bad.push_back(message);
      answer.text += message + "\n";
      answer.status = kFailed;
    };
    try {
      const auto pack = Pack::open(file);
      entries = pack->rows().size();
      bytes = pack->bytes();
      for (const PackRow& row : pack->rows()) {
        try {
          unknown += check_entry(*pack, row) ? 0 : 1;
        } catch (const Error& error) {
          wrong(error.what());
        }
      }
    } catch (const Error& error) {
      wrong(error.what());
    }
    if (unknown != 0)
      answer.warnings.push_back(fmt::format(
          "{}: {} of {} entries are of another version of this program, or of a kind that it does not know: "
          "their bytes are whole, what they hold is not checked",
          printable(file.string()), unknown, entries));
    if (bad.empty())
      answer.text += fmt::format("{}: {} entries are whole\n", printable(file.string()), entries);
    answer.json["packs"].push_back({{"pack", file.string()},
                                    {"entries", entries},
                                    {"unknown", unknown},
                                    {"bytes", bytes},
                                    {"bad", bad}});
  }
  return answer;
}

/// The entry that holds what two of the same identity hold: Binaries of several versions of NVRTC. Nothing
/// where one version has made different ones, or the entries hold something else.
std::optional<std::vector<std::byte>> joined(std::span<const std::byte> a, std::span<const std::byte> b) {
  cache::Damage damage{};
  const auto first = cache::decode(a, damage), second = cache::decode(b, damage);
  if (!first || !second || field(first->identity, "what") != "binary") return std::nullopt;
  std::vector<StoredBinary> all = stored_binaries(first->identity, first->payload);
  for (const StoredBinary& other : stored_binaries(second->identity, second->payload)) {
    const auto same = std::ranges::find(all, other.nvrtc, &StoredBinary::nvrtc);
    if (same != all.end() && !std::ranges::equal(same->bytes, other.bytes)) return std::nullopt;
    if (same == all.end()) all.push_back(other);
  }
  return cache::encode(first->identity, store_binaries(first->identity.key(), all));
}

Answer merge(const PackArguments& arguments) {
  cache::check_pack_can_be_written(arguments.output);
  cache::PackEntries entries;
  std::map<Digest, fs::path> first;
  for (const fs::path& file : arguments.files) {
    const auto pack = Pack::open(file);
    for (const PackRow& row : pack->rows()) {
      check_entry(*pack, row);  // what is not whole is not carried on
      const auto stored = pack->stored(row);
      const auto known = entries.find(row.key);
      if (known == entries.end()) {
        entries.emplace(row.key, std::vector<std::byte>(stored.begin(), stored.end()));
        first.emplace(row.key, file);
        continue;
      }
      if (std::ranges::equal(stored, known->second)) continue;
      auto both = joined(known->second, stored);
      if (!both)
        throw Error(
            ErrorKind::cache,
            fmt::format("cannot merge '{}' and '{}': both have an entry {} of the same NVRTC, with "
                        "different bytes (of different patches of it?); make one of them again",
                        printable(first.at(row.key).string()), printable(file.string()), row.key.hex()));
      known->second = std::move(*both);
    }
  }
  cache::write_pack(arguments.output, entries);
  Answer answer;
  const std::size_t bytes = Pack::open(arguments.output)->bytes();
  answer.json = {{"pack", arguments.output.string()}, {"kernels", entries.size()}, {"bytes", bytes}};
  answer.text = fmt::format("wrote {}: {} entries, {} bytes\n", printable(arguments.output.string()),
                            entries.size(), bytes);
  return answer;
}

/// The rows that the beginnings of keys name, each once.
std::vector<PackRow> chosen(const Pack& pack, const PackArguments& arguments) {
  if (arguments.all == !arguments.keys.empty())
    throw Error(ErrorKind::invalid_argument, "extract: which entries? Name keys, or give --all");
  if (arguments.all) return pack.rows();
  std::vector<PackRow> rows;
  for (const std::string& key : arguments.keys) {
    std::vector<PackRow> matches;
    for (const PackRow& row : pack.rows())
      if (row.key.hex().starts_with(key)) matches.push_back(row);
    if (matches.size() != 1)
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("extract: {} entries of '{}' have a key that begins with '{}'; `pack list` lists "
                      "them",
                      matches.empty() ? "no" : std::to_string(matches.size()),
                      printable(pack.file().string()), printable(key)));
    if (std::find(rows.begin(), rows.end(), matches.front()) == rows.end()) rows.push_back(matches.front());
  }
  return rows;
}

Answer extract(const PackArguments& arguments) {
  const auto pack = Pack::open(arguments.file);
  std::vector<NamedBytes> files;
  for (const PackRow& row : chosen(*pack, arguments))
    for (NamedBytes& file : files_of(pack->entry(row))) files.push_back(std::move(file));
  Answer answer;
  answer.json = {{"pack", pack->file().string()}};
  publish_folder(arguments.output, files, answer);
  return answer;
}

}  // namespace

void add_pack(CLI::App& root, Invocation& invocation) {
  CLI::App& app = *root.add_subcommand("pack", "looks into packs, and joins them");
  app.require_subcommand(1);
  const auto verb = [&](const char* name, const char* help, Answer (*command)(const PackArguments&),
                        bool many) {
    CLI::App& sub = *app.add_subcommand(name, help);
    const auto arguments = std::make_shared<PackArguments>();
    if (!many)
      sub.add_option("PACK", arguments->file, "a pack")->required();
    else
      sub.add_option("PACK", arguments->files, "packs")->required();
    add_json(sub, invocation);
    sub.callback(
        [&invocation, arguments, command] { invocation.command = [=] { return command(*arguments); }; });
    return std::pair(&sub, arguments);
  };
  verb("list", "what a pack holds", list, false);
  verb("verify", "reads every entry of packs and checks it", verify, true);
  const auto [merging, merged] = verb("merge", "makes one pack of several", merge, true);
  merging->add_option("-o,--output", merged->output, "the pack to write")->required();
  const auto [extracting, extracted] =
      verb("extract", "writes entries as files: machine code, PTX, compile log, identity", extract, false);
  extracting->add_option("KEY", extracted->keys, "keys of entries, or as much of them as tells them apart");
  extracting->add_flag("--all", extracted->all, "all entries");
  extracting->add_option("-o,--output", extracted->output, "folder to write to: all files or none")
      ->required();
}

}  // namespace sparsekiln::tools
