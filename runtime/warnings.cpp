#include "runtime/warnings.h"

#include <cstddef>
#include <deque>
#include <mutex>
#include <unordered_set>
#include <utility>

namespace sparsekiln {
namespace {

constexpr std::size_t kMostWarnings = 64;  // in a process that never takes one

struct Warnings {
  std::mutex mutex;
  std::unordered_set<std::string> added;
  std::deque<std::string> waiting;
};

/// Not destroyed: threads of the library may still run when the process ends.
Warnings& warnings() {
  static auto* const all = new Warnings;
  return *all;
}

}  // namespace

void warn(const std::string& sentence) {
  Warnings& all = warnings();
  const std::lock_guard lock(all.mutex);
  if (all.added.size() < kMostWarnings && all.added.insert(sentence).second) all.waiting.push_back(sentence);
}

std::optional<std::string> take_warning() {
  Warnings& all = warnings();
  const std::lock_guard lock(all.mutex);
  if (all.waiting.empty()) return std::nullopt;
  std::string oldest = std::move(all.waiting.front());
  all.waiting.pop_front();
  return oldest;
}

}  // namespace sparsekiln
