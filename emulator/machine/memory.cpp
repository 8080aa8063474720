#include "emulator/machine/memory.h"

#include <algorithm>
#include <cstring>

#include "emulator/machine/shadow.h"

namespace sparsekiln::emulator {
namespace {

constexpr std::uint64_t kLeastGap = std::uint64_t{1} << 20;

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Allocation::Allocation() = default;
Allocation::~Allocation() = default;
GlobalMemory::GlobalMemory(std::uint64_t capacity, std::uint64_t base) : capacity_(capacity), next_(base) {}
GlobalMemory::~GlobalMemory() = default;

Allocation* GlobalMemory::allocate(std::uint64_t bytes, bool constant, std::string name) {
  const std::scoped_lock lock(mutex_);
  if (bytes == 0 || bytes > capacity_ - used_) return nullptr;
  auto allocation = std::make_unique<Allocation>();
  try {
    allocation->data = std::make_unique_for_overwrite<std::byte[]>(bytes);
    if (!constant) allocation->shadow = std::make_unique<Shadow>(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  std::uint64_t& next = constant ? next_constant_ : next_;
  allocation->address = next;
  allocation->bytes = bytes;
  allocation->constant = constant;
  allocation->name = std::move(name);
  next += rounded_up(bytes, 256) + rounded_up(std::max(bytes, kLeastGap), 256);
  used_ += bytes;
  Allocation* const result = allocation.get();
  allocations_.emplace(result->address, std::move(allocation));
  return result;
}

bool GlobalMemory::release(std::uint64_t address) {
  const std::scoped_lock lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return false;
  used_ -= found->second->bytes;
  allocations_.erase(found);
  return true;
}

Allocation* GlobalMemory::find_locked(std::uint64_t address) const {
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  Allocation* const allocation = std::prev(after)->second.get();
  return address - allocation->address < allocation->bytes ? allocation : nullptr;
}

Allocation* GlobalMemory::find(std::uint64_t address) const {
  const std::scoped_lock lock(mutex_);
  return find_locked(address);
}

std::vector<Allocation*> GlobalMemory::sorted() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Allocation*> result;
  result.reserve(allocations_.size());
  for (const auto& [address, allocation] : allocations_) result.push_back(allocation.get());
  return result;
}

std::uint64_t GlobalMemory::used() const {
  const std::scoped_lock lock(mutex_);
  return used_;
}

std::size_t GlobalMemory::allocations() const {
  const std::scoped_lock lock(mutex_);
  return allocations_.size();
}

std::byte* GlobalMemory::range(std::uint64_t address, std::uint64_t bytes, bool writes) const {
  Allocation* const allocation = find_locked(address);
  if (allocation == nullptr || bytes > allocation->bytes - (address - allocation->address)) return nullptr;
  const std::uint64_t offset = address - allocation->address;
  if (writes && allocation->shadow != nullptr) allocation->shadow->mark_written(offset, bytes);
  return allocation->data.get() + offset;
}

bool GlobalMemory::write(std::uint64_t address, const void* from, std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  std::byte* const to = range(address, bytes, true);
  if (to != nullptr) std::memcpy(to, from, bytes);
  return to != nullptr;
}

bool GlobalMemory::read(std::uint64_t address, void* to, std::uint64_t bytes) const {
  const std::scoped_lock lock(mutex_);
  const std::byte* const from = range(address, bytes, false);
  if (from != nullptr) std::memcpy(to, from, bytes);
  return from != nullptr;
}

bool GlobalMemory::fill(std::uint64_t address, std::uint8_t value, std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  std::byte* const to = range(address, bytes, true);
  if (to != nullptr) std::memset(to, value, bytes);
  return to != nullptr;
}

bool GlobalMemory::copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  const std::byte* const source = range(from, bytes, false);
  std::byte* const target = range(to, bytes, false);
  if (source == nullptr || target == nullptr) return false;
  const Allocation& source_of = *find_locked(from);
  const Allocation& target_of = *find_locked(to);
  if (target_of.shadow != nullptr)
    target_of.shadow->copy_written(to - target_of.address, source_of.shadow.get(), from - source_of.address,
                                   bytes);
  std::memmove(target, source, bytes);
  return true;
}

}  // namespace sparsekiln::emulator
