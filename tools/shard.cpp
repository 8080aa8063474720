#include "tools/shard.h"

#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

namespace sparsekiln::tools {
namespace {

bool read(std::string_view text, std::size_t& number) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  return status == std::errc{} && end == text.data() + text.size();
}

}  // namespace

Shard parse_shard(const std::string& text) {
  const std::size_t slash = text.find('/');
  Shard shard;
  const bool whole = slash != std::string::npos &&
                     read(std::string_view(text).substr(0, slash), shard.index) &&
                     read(std::string_view(text).substr(slash + 1), shard.count);
  if (!whole || shard.index >= shard.count)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--shard '{}': I/N, with I from 0 to N - 1, such as 0/8", printable(text)));
  return shard;
}

void check_shard(const Shard& shard, bool from_store) {
  if (shard.count > 1 && from_store)
    throw Error(
        ErrorKind::invalid_argument,
        "--shard shares out a list that all machines have, and --from-store is this machine's; a jobs "
        "file would work");
}

std::vector<KernelJob> jobs_of_shard(std::vector<KernelJob> jobs, const Shard& shard) {
  if (shard.count == 1) return jobs;
  std::vector<KernelJob> own;
  for (std::size_t number = shard.index; number < jobs.size(); number += shard.count)
    own.push_back(std::move(jobs[number]));
  return own;
}

}  // namespace sparsekiln::tools
