#include "cache/memory.h"

#include <iterator>
#include <utility>

namespace sparsekiln::cache {

std::optional<std::vector<std::byte>> Memory::get(const Identity& identity) {
  const std::lock_guard lock(mutex_);
  if (order_.empty()) return std::nullopt;  // the usual case, in which the disk works
  const auto found = by_identity_.find(identity.canonical());
  if (found == by_identity_.end()) return std::nullopt;
  order_.splice(order_.begin(), order_, found->second);
  return found->second->payload;
}

void Memory::put(const Identity& identity, std::span<const std::byte> payload) {
  Kept kept{identity.canonical(), {payload.begin(), payload.end()}};
  const std::lock_guard lock(mutex_);
  if (const auto old = by_identity_.find(kept.identity); old != by_identity_.end()) erase(old->second);
  if (kept.bytes() > limit_) return;
  while (used_ > limit_ - kept.bytes()) erase(std::prev(order_.end()));
  used_ += kept.bytes();
  order_.push_front(std::move(kept));
  by_identity_.emplace(order_.front().identity, order_.begin());
}

void Memory::forget(const Identity& identity) {
  const std::lock_guard lock(mutex_);
  if (order_.empty()) return;
  if (const auto old = by_identity_.find(identity.canonical()); old != by_identity_.end()) erase(old->second);
}

void Memory::erase(Order::iterator kept) {
  used_ -= kept->bytes();
  by_identity_.erase(kept->identity);
  order_.erase(kept);
}

}  // namespace sparsekiln::cache
