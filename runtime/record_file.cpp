#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "autotune/record_json.h"
#include "compiler/layout_file/disk.h"
#include "runtime/records.h"

namespace sparsekiln {
namespace {

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

std::vector<Record> read_records(const std::filesystem::path& file) {
  const std::string text = layout_file::read_file(file);
  std::vector<Record> records;
  std::size_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    ++number;
    if (blank(line)) continue;
    try {
      records.push_back(parse_record(line));
    } catch (const Error& error) {
      throw Error(error.kind(),
                  fmt::format("'{}', line {}: {}", printable(file.string()), number, error.what()));
    }
  }
  return records;
}

}  // namespace sparsekiln
