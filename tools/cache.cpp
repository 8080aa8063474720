#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sparsekiln/binary.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "cache/caps.h"
#include "cache/failure.h"
#include "cache/listing.h"
#include "cache/read_only_store.h"
#include "cache/signing.h"
#include "cache/store.h"
#include "cache/trim.h"
#include "compiler/backend.h"
#include "compiler/build.h"
#include "compiler/stored_binaries.h"
#include "runtime/read_only_stores.h"
#include "runtime/request.h"
#include "runtime/stored_binary.h"
#include "runtime/stored_entry.h"
#include "runtime/stored_requests.h"
#include "tools/binary_report.h"
#include "tools/cache_miss.h"
#include "tools/command.h"
#include "tools/entry_report.h"
#include "tools/options.h"
#include "tools/publish.h"

namespace sparsekiln::tools {
namespace {

namespace fs = std::filesystem;
using cache::File;
using cache::FileKind;
using cache::Folder;

struct CacheArguments {
  fs::path folder;  ///< empty: the default one
  std::string key;
  fs::path extract_to;
  fs::path key_file;
  std::string max_bytes;
  std::string max_files;
  bool failed = false;
  bool bad = false;
};

std::int64_t unix_time(cache::Stamp stamp) {
  return std::chrono::duration_cast<std::chrono::seconds>(stamp.time_since_epoch()).count();
}

struct Sum {
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  void add(const File& file) {
    ++files;
    bytes += file.bytes;
  }
};

Json describe(const Sum& sum) { return {{"files", sum.files}, {"bytes", sum.bytes}}; }

Answer stats(const CacheArguments& arguments) {
  const cache::Store store(arguments.folder);
  const Folder folder = folder_of(arguments.folder);
  Sum all;
  std::map<FileKind, Sum> by_kind;
  std::map<std::pair<std::string, std::string>, Sum> by_use;  // architecture and operation
  for (const File& file : cache::list(folder)) {
    all.add(file);
    by_kind[file.kind].add(file);
    if (file.kind != FileKind::entry) continue;
    const auto identity = cache::read_identity(folder, file);
    if (!identity || field(*identity, "what") != "binary") continue;
    const std::string target = field(*identity, "target");
    by_use[{target.substr(0, target.find(':')), field(*identity, "operation")}].add(file);
  }
  const cache::Counters totals = store.totals();
  Answer answer;
  answer.json = {
      {"folder", folder.path().string()}, {"usable", store.on_disk()}, {"hits", totals.hits},
      {"misses", totals.misses},          {"stores", totals.stores},   {"quarantined", totals.quarantined},
      {"failures", totals.failures}};
  answer.json.update(describe(all));
  answer.json["max_files"] = store.caps().files;
  answer.json["max_bytes"] = store.caps().bytes;
  answer.json["kinds"] = Json::object();
  for (const auto& [kind, sum] : by_kind)
    answer.json["kinds"][std::string(cache::name(kind))] = describe(sum);
  answer.json["kernels"] = Json::array();
  std::vector<std::vector<std::string>> rows{{"ARCHITECTURE", "OPERATION", "KERNELS", "BYTES"}};
  for (const auto& [use, sum] : by_use) {
    Json row = {{"architecture", use.first}, {"operation", use.second}};
    row.update(describe(sum));
    answer.json["kernels"].push_back(row);
    rows.push_back({use.first, use.second, fmt::format("{}", sum.files), fmt::format("{}", sum.bytes)});
  }
  answer.text = fmt::format(
      "{}: {} of {} files, {} of {} bytes\n"
      "hits {}, misses {}, stores {}, quarantined {}, failed writes {}\n",
      printable(folder.path().string()), all.files, store.caps().files, all.bytes, store.caps().bytes,
      totals.hits, totals.misses, totals.stores, totals.quarantined, totals.failures);
  if (!by_use.empty()) answer.text += table(rows);
  if (!store.on_disk()) answer.warnings.push_back(store.why());
  if (!store.complaint().empty()) answer.warnings.push_back(store.complaint());
  return answer;
}

Answer list(const CacheArguments& arguments) {
  const Folder folder = folder_of(arguments.folder);
  Answer answer;
  answer.json = {{"folder", folder.path().string()}, {"files", Json::array()}};
  std::vector<std::vector<std::string>> rows{{"KEY", "KIND", "WHAT", "OPERATION", "LAYOUT", "BLOCK", "BATCH",
                                              "DTYPE", "CONVOLUTION", "TARGET", "NVRTC", "BYTES", "USED",
                                              "PLAN"}};
  for (const File& file : cache::list(folder)) {
    if (file.kind == FileKind::other) continue;
    const cache::Beginning beginning = cache::read_beginning(folder, file).value_or(cache::Beginning());
    const cache::Identity& identity = beginning.identity;
    const auto versions = nvrtc_versions(identity, beginning.payload);
    answer.json["files"].push_back({{"key", file.key},
                                    {"kind", cache::name(file.kind)},
                                    {"file", file.path.string()},
                                    {"bytes", file.bytes},
                                    {"used", unix_time(file.stamp)},
                                    {"nvrtc", versions},
                                    {"identity", describe_identity(identity)}});
    rows.push_back({file.key, std::string(cache::name(file.kind)), field(identity, "what"),
                    field(identity, "operation"), field(identity, "layout").substr(0, 8),
                    field(identity, "block"), field(identity, "batch"), field(identity, "dtype"),
                    field(identity, "convolution"), field(identity, "target"),
                    fmt::format("{}", fmt::join(versions, ", ")), fmt::format("{}", file.bytes),
                    age(file.stamp), field(identity, "plan")});
  }
  answer.text = table(rows);
  return answer;
}

/// The one entry, whole or failed, whose key begins so.
File find(const Folder& folder, const std::string& key) {
  if (key.empty())
    throw Error(ErrorKind::invalid_argument,
                "KEY '': the beginning of a key would work; `cache list` lists them");
  std::vector<File> matches;
  for (File& file : cache::list(folder))
    if ((file.kind == FileKind::entry || file.kind == FileKind::failed) && file.key.starts_with(key))
      matches.push_back(std::move(file));
  // The name of an entry is the beginning of that of a failure with the same key, and listed before it.
  if (!matches.empty() && matches.front().key == matches.back().key) return std::move(matches.front());
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{} entries of '{}' have a key that begins with '{}'; `cache list` lists them",
                          matches.empty() ? "no" : std::to_string(matches.size()),
                          printable(folder.path().string()), printable(key)));
}

/// The source that a Binary was made of, emitted again; nothing, and a warning, where that cannot be done.
std::optional<std::string> source_of(const Folder& folder, const cache::Identity& identity,
                                     const Binary& binary, Answer& answer) {
  try {
    const StoredRequest kernel = stored_request(*cache::open_read_only_store(folder.path()), identity);
    std::string source = emit_source(make_problem(kernel.layout, kernel.options), binary.target, binary.plan);
    if (Digest::of(source) == binary.source) return source;
    answer.warnings.push_back(
        "the source is left out: this program's compiler would emit another one than the entry was made of");
  } catch (const Error& error) {
    answer.warnings.push_back(fmt::format("the source is left out: {}", error.what()));
  }
  return std::nullopt;
}

/// Adds what failed to the answer; the files are its source and log.
std::vector<NamedBytes> report_failure(const File& file, const cache::StoredEntry& entry, Answer& answer) {
  const auto failure = cache::decode_failure(entry.payload);
  if (!failure)
    throw Error(ErrorKind::cache, fmt::format("'{}' is malformed", printable(file.path.string())));
  answer.json["failure"] = {{"message", failure->message},
                            {"log", failure->log},
                            {"toolchain", failure->toolchain},
                            {"made", unix_time(failure->made)}};
  answer.text +=
      fmt::format("failed with {}: {}\n{}\n", printable(failure->toolchain), failure->message, failure->log);
  return {named(file.key + ".source", failure->source), named(file.key + ".log", failure->log)};
}

/// Adds the Binaries of a kernel to the answer. Gives one of them: all were made of one source.
Binary report_binaries(const cache::StoredEntry& entry, Answer& answer) {
  std::vector<Binary> binaries = deserialize_binaries(entry.identity, entry.payload);
  answer.json["binaries"] = Json::array();
  for (const Binary& binary : binaries) {
    answer.json["binaries"].push_back({{"compiler", binary.compiler},
                                       {"options", binary.options},
                                       {"source", binary.source.hex()},
                                       {"resources", describe_entries(binary)},
                                       {"code_bytes", binary.code.size()},
                                       {"data", describe_data(binary)}});
    answer.text += fmt::format("made by {} {}, of source {}; {} bytes of code", printable(binary.compiler),
                               printable(binary.options), binary.source.hex(), binary.code.size());
    if (!binary.data.empty()) answer.text += fmt::format(", {} of tables beside it", data_bytes(binary));
    answer.text += "\n";
  }
  return std::move(binaries.front());
}

/// Adds what an entry holds to the answer; the files are all that can be extracted of it.
std::vector<NamedBytes> report_contents(const Folder& folder, const File& file,
                                        const cache::StoredEntry& entry, Answer& answer, bool extracts) {
  if (file.kind == FileKind::failed) return report_failure(file, entry, answer);
  std::vector<NamedBytes> files = files_of(entry);
  if (field(entry.identity, "what") != "binary") return files;
  const Binary binary = report_binaries(entry, answer);
  if (!extracts) return files;
  if (const auto source = source_of(folder, entry.identity, binary, answer))
    files.push_back(named(fmt::format("{}{}", file.key, backend_of(binary.target).source_suffix), *source));
  return files;
}

Answer inspect(const CacheArguments& arguments) {
  const Folder folder = folder_of(arguments.folder);
  const File file = find(folder, arguments.key);
  cache::Damage damage{};
  const auto entry = cache::read_entry(folder, file, damage);
  if (!entry)
    throw Error(ErrorKind::cache,
                fmt::format("'{}' {}", printable(file.path.string()), state_without_entry(damage)));
  Answer answer;
  answer.json = {{"key", file.key},
                 {"kind", cache::name(file.kind)},
                 {"file", file.path.string()},
                 {"bytes", file.bytes},
                 {"used", unix_time(file.stamp)},
                 {"identity", describe_identity(entry->identity)}};
  answer.text = fmt::format("{}: {}, {} bytes, used {} ago\n", printable(file.path.string()),
                            cache::name(file.kind), file.bytes, age(file.stamp));
  for (const auto& [name, value] : entry->identity.fields())
    answer.text += fmt::format("  {:<15} {}\n", printable(name), printable(value));
  const bool extracts = !arguments.extract_to.empty();
  const std::vector<NamedBytes> files = report_contents(folder, file, *entry, answer, extracts);
  if (extracts) publish_folder(arguments.extract_to, files, answer);
  return answer;
}

/// Empty where an entry is whole, or gone meanwhile. `other` is set for one of another version.
std::string damage_of(const Folder& folder, const cache::ReadOnlyStore& store, const File& file,
                      bool& other) {
  try {
    cache::Damage damage{};
    const auto entry = cache::read_entry(folder, file, damage);
    other = damage == cache::Damage::other_version;
    if (!entry) return other || damage == cache::Damage::none ? "" : std::string(cache::name(damage));
    if (file.kind == FileKind::failed && !cache::decode_failure(entry->payload)) return "malformed failure";
    if (file.kind == FileKind::entry) check_payload(*entry, store);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

Answer verify(const CacheArguments& arguments) {
  const Folder folder = folder_of(arguments.folder);
  Answer answer;
  std::size_t whole = 0;
  std::size_t other_version = 0;
  std::size_t set_aside = 0;
  Json damaged = Json::array();
  const std::vector<File> files = cache::list(folder);
  std::shared_ptr<const cache::ReadOnlyStore> store;
  if (!files.empty()) store = cache::open_read_only_store(folder.path());
  for (const File& file : files) {
    set_aside += file.kind == FileKind::bad ? 1 : 0;
    if (file.kind != FileKind::entry && file.kind != FileKind::failed) continue;
    bool other = false;
    const std::string wrong = damage_of(folder, *store, file, other);
    if (wrong.empty()) {
      ++(other ? other_version : whole);
      continue;
    }
    damaged.push_back({{"file", file.path.string()}, {"damage", wrong}});
    answer.text += fmt::format("{}: {}\n", printable(file.path.string()), wrong);
    answer.status = kFailed;
  }
  answer.text += fmt::format(
      "{}: {} entries are whole, {} are damaged, {} are of another version of the format, {} were set aside "
      "before\n",
      printable(folder.path().string()), whole, damaged.size(), other_version, set_aside);
  answer.json = {{"folder", folder.path().string()},
                 {"whole", whole},
                 {"damaged", damaged},
                 {"other_version", other_version},
                 {"set_aside", set_aside}};
  return answer;
}

Answer removed(const Folder& folder, const cache::Removed& what) {
  Answer answer;
  answer.json = {{"folder", folder.path().string()}, {"files", what.files}, {"bytes", what.bytes}};
  answer.text = fmt::format("{}: removed {} files of {} bytes\n", printable(folder.path().string()),
                            what.files, what.bytes);
  return answer;
}

std::uint64_t amount(const char* option, const std::string& text, std::uint64_t otherwise) {
  if (text.empty()) return otherwise;
  if (const auto parsed = cache::parse_amount(text)) return *parsed;
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("{} '{}': write a positive number, such as 20000, 512M or 2G", option, printable(text)));
}

Answer make_key(const CacheArguments& arguments) {
  if (!arguments.key_file.has_filename())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("FILE '{}' has no name of a file; one such as 'sparsekiln.key' would work",
                            printable(arguments.key_file.string())));
  cache::Keys::make(arguments.key_file);
  const std::string secret = arguments.key_file.string();
  Answer answer;
  answer.json = {{"secret", secret}, {"public", secret + ".pub"}};
  answer.text = fmt::format(
      "{}: signs what is sent to a shared level of the cache; keep it where only builders read it\n"
      "{}.pub: believes those signatures; SPARSEKILN_REMOTE_KEY names it everywhere else\n",
      printable(secret), printable(secret));
  return answer;
}

Answer trim(const CacheArguments& arguments) {
  std::string complaint;
  cache::Caps caps = cache::caps_from_environment(complaint);
  caps.bytes = amount("--max-bytes", arguments.max_bytes, caps.bytes);
  caps.files = amount("--max-files", arguments.max_files, caps.files);
  const Folder folder = folder_of(arguments.folder);
  Answer answer = removed(folder, cache::trim(folder, caps));
  if (!complaint.empty()) answer.warnings.push_back(complaint);
  return answer;
}

Answer clear(const CacheArguments& arguments) {
  if (arguments.failed && arguments.bad)
    throw Error(ErrorKind::invalid_argument, "clear --failed --bad: one of them, or neither to remove all");
  const Folder folder = folder_of(arguments.folder);
  return removed(folder, cache::clear(folder, arguments.failed ? cache::Clear::failed
                                              : arguments.bad  ? cache::Clear::bad
                                                               : cache::Clear::all));
}

}  // namespace

void add_cache(CLI::App& root, Invocation& invocation) {
  CLI::App& app = *root.add_subcommand("cache", "looks into the store of compiled kernels, and tidies it");
  app.require_subcommand(1);
  const auto verb = [&](const char* name, const char* help, Answer (*command)(const CacheArguments&)) {
    CLI::App& sub = *app.add_subcommand(name, help);
    const auto arguments = std::make_shared<CacheArguments>();
    sub.add_option("--cache-dir", arguments->folder,
                   "folder of the store (else SPARSEKILN_CACHE_DIR, XDG_CACHE_HOME/sparsekiln, "
                   "~/.cache/sparsekiln)");
    add_json(sub, invocation);
    sub.callback(
        [&invocation, arguments, command] { invocation.command = [=] { return command(*arguments); }; });
    return std::pair(&sub, arguments);
  };
  verb("stats", "hits, misses and what is there, by architecture and operation", stats);
  verb("list", "every entry, with what it is and when it was last used (to the hour)", list);
  const auto [inspecting, inspected] = verb("inspect", "one entry in full", inspect);
  inspecting->add_option("KEY", inspected->key, "its key, or as much of it as tells it apart")->required();
  inspecting->add_option("--extract", inspected->extract_to,
                         "folder to write machine code, PTX, source, compile log and identity to");
  verb("verify", "reads every entry and checks it; what is damaged is named, and stays", verify);
  const auto [trimming, trimmed] =
      verb("trim", "removes what is stale, and the least recently used down to 90 % of the caps", trim);
  trimming->add_option("--max-bytes", trimmed->max_bytes,
                       "cap of bytes (else SPARSEKILN_CACHE_MAX_BYTES, 1G)");
  trimming->add_option("--max-files", trimmed->max_files,
                       "cap of files (else SPARSEKILN_CACHE_MAX_FILES, 20000)");
  const auto [clearing, cleared] = verb("clear", "removes everything, but what is being made", clear);
  clearing->add_flag("--failed", cleared->failed, "only what is remembered of failed compiles");
  clearing->add_flag("--bad", cleared->bad, "only damaged files that were set aside");
  CLI::App& key = *app.add_subcommand("key", "makes a pair of keys for a shared level of the cache");
  const auto made = std::make_shared<CacheArguments>();
  key.add_option("FILE", made->key_file, "file to make for the secret key; FILE.pub gets the public one")
      ->required();
  add_json(key, invocation);
  key.callback([&invocation, made] { invocation.command = [=] { return make_key(*made); }; });
  CLI::App& miss = *app.add_subcommand(
      "explain-miss", "says in which fields a wanted kernel differs from the nearest one that is there");
  const auto wanted = std::make_shared<KernelArguments>();
  add_kernel(miss, *wanted);
  add_json(miss, invocation);
  miss.callback([&invocation, wanted] { invocation.command = [=] { return explain_miss(*wanted); }; });
}

}  // namespace sparsekiln::tools
