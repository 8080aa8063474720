#include "tools/entry_report.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <sparsekiln/binary.h>
#include <sparsekiln/printable.h>

#include "runtime/stored_binary.h"
#include "tools/binary_report.h"

#include "compiler/backend.h"
#include "compiler/cuda/compatibility.h"
#include "compiler/stored_binaries.h"

namespace sparsekiln::tools {

std::string field(const cache::Identity& identity, std::string_view wanted) {
  for (const auto& [name, value] : identity.fields())
    if (name == wanted) return value;
  return "-";
}

Json describe_identity(const cache::Identity& identity) {
  // Appended as they come: an object would look for each name among all before it.
  Json fields = Json::object();
  std::set<std::string_view> names;
  for (const auto& [name, value] : identity.fields())
    if (names.insert(name).second) fields.get_ref<Json::object_t&>().push_back({name, value});
  return fields;
}

std::string table(std::vector<std::vector<std::string>> rows) {
  for (auto& row : rows)
    for (std::string& cell : row) cell = printable(cell);
  std::vector<std::size_t> widths;
  for (const auto& row : rows)
    for (std::size_t column = 0; column < row.size(); ++column) {
      widths.resize(std::max(widths.size(), column + 1));
      widths[column] = std::max(widths[column], row[column].size());
    }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t column = 0; column + 1 < row.size(); ++column)
      text += fmt::format("{:<{}}  ", row[column], widths[column]);
    text += row.back() + "\n";
  }
  return text;
}

std::vector<std::string> nvrtc_versions(const cache::Identity& identity, std::span<const std::byte> payload) {
  std::vector<std::string> versions;
  if (field(identity, "what") != "binary") return versions;
  for (const int version : stored_versions(payload))
    if (version != 0) versions.push_back(cuda::version_text(version));
  return versions;
}

std::vector<NamedBytes> files_of(const cache::StoredEntry& entry) {
  const std::string key = entry.identity.key().hex();
  std::string identity;
  for (const auto& [name, value] : entry.identity.fields()) identity += fmt::format("{}={}\n", name, value);
  std::vector<NamedBytes> files{named(key + ".identity", identity)};
  if (field(entry.identity, "what") != "binary") {
    files.push_back(named(key + ".bin", std::span<const std::byte>(entry.payload)));
    return files;
  }
  const std::vector<Binary> binaries = deserialize_binaries(entry.identity, entry.payload);
  for (const Binary& binary : binaries) {
    const Backend& backend = backend_of(binary.target);
    const std::string name = binaries.size() == 1
                                 ? key
                                 : fmt::format("{}.nvrtc-{}", key, cuda::version_text(nvrtc_version(binary)));
    files.push_back(
        named(fmt::format("{}{}", name, backend.code_suffix), std::span<const std::byte>(binary.code)));
    if (!binary.ptx.empty()) files.push_back(named(name + ".ptx", binary.ptx));
    for (const ModuleData& data : binary.data)
      files.push_back(named(data_file(name, data), std::span(data.bytes)));
    files.push_back(named(name + ".log", binary.log));
  }
  return files;
}

}  // namespace sparsekiln::tools
