#include "cache/totals.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

namespace sparsekiln::cache {

// The file of counters: lines of five numbers in decimal, separated by single blanks, in the order of
// Counters.
//
//  line := hits ' ' misses ' ' stores ' ' quarantined ' ' failures '\n'
//
// Each process appends its counts with one write, which lines of other processes cannot interrupt on a local
// file system. Where they can, or if a process was killed, a line cannot be read and is left out of the sum.
// Later versions may add numbers after these five.

namespace {

constexpr const char* kName = "counters";
constexpr std::size_t kLargest = std::size_t{16} << 20;  // what follows is not read
constexpr std::size_t kGrown = 4096;

std::string line_of(const Counters& counters) {
  return fmt::format("{} {} {} {} {}\n", counters.hits, counters.misses, counters.stores,
                     counters.quarantined, counters.failures);
}

std::optional<Counters> parse_line(std::string_view line) {
  std::array<std::uint64_t, 5> numbers{};
  const char* at = line.data();
  const char* const end = at + line.size();
  for (std::uint64_t& number : numbers) {
    const auto [stopped, error] = std::from_chars(at, end, number);
    if (error != std::errc{} || (stopped != end && *stopped != ' ')) return std::nullopt;
    at = stopped == end ? end : stopped + 1;
  }
  return Counters{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
}

std::string read_text(int root) {
  const Descriptor file = open_file(root, kName, kReadFlags);
  struct stat status{};
  if (!file.open() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  std::vector<std::byte> bytes(std::min(static_cast<std::size_t>(status.st_size), kLargest));
  if (read_into(file.get(), bytes) != 0) return {};
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

Counters operator+(const Counters& a, const Counters& b) {
  return {a.hits + b.hits, a.misses + b.misses, a.stores + b.stores, a.quarantined + b.quarantined,
          a.failures + b.failures};
}

Counters operator-(const Counters& now, const Counters& before) {
  return {now.hits - before.hits, now.misses - before.misses, now.stores - before.stores,
          now.quarantined - before.quarantined, now.failures - before.failures};
}

Counters sum_totals(std::string_view text) {
  Counters sum;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // the rest of a write that was interrupted
    if (const auto counters = parse_line(text.substr(0, end))) sum = sum + *counters;
    text.remove_prefix(end + 1);
  }
  return sum;
}

void append_totals(const Folder& folder, const Counters& counters) {
  const Descriptor root = folder.open_root(false);
  if (!root.open()) return;
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK;
  const Descriptor file = open_file(root.get(), kName, kFlags, kFileMode);
  struct stat status{};
  if (!file.open() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  static_cast<void>(write_all(file.get(), bytes_of(line_of(counters))));
}

Counters read_totals(const Folder& folder) {
  const Descriptor root = folder.open_root(false);
  return root.open() ? sum_totals(read_text(root.get())) : Counters{};
}

void compact_totals(const Folder& folder) {
  const Descriptor root = folder.open_root(false);
  if (!root.open()) return;
  const std::string text = read_text(root.get());
  if (text.size() >= kGrown)
    static_cast<void>(replace_file(root.get(), kName, bytes_of(line_of(sum_totals(text)))));
}

}  // namespace sparsekiln::cache
