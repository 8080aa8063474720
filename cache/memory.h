#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/identity.h"

namespace sparsekiln::cache {

/// Keeps for this process what could not be written to disk. Its size is bounded; the least recently used is
/// removed first. Thread-safe.
class Memory {
 public:
  static constexpr std::size_t kDefaultLimit = std::size_t{256} << 20;

  /// `limit`: bytes of identities and payloads together.
  explicit Memory(std::size_t limit = kDefaultLimit) : limit_(limit) {}

  [[nodiscard]] std::optional<std::vector<std::byte>> get(const Identity& identity);
  /// Keeps a copy, unless it exceeds the limit by itself.
  void put(const Identity& identity, std::span<const std::byte> payload);
  void forget(const Identity& identity);

 private:
  struct Kept {
    std::string identity;
    std::vector<std::byte> payload;
    [[nodiscard]] std::size_t bytes() const { return identity.size() + payload.size(); }
  };
  using Order = std::list<Kept>;  // most recently used first

  void erase(Order::iterator kept);

  std::mutex mutex_;
  std::size_t limit_;
  std::size_t used_ = 0;
  Order order_;
  std::unordered_map<std::string_view, Order::iterator>
      by_identity_;  // views into order_, whose nodes do not move
};

}  // namespace sparsekiln::cache
