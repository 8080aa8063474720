#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/machine/block.h"

namespace sparsekiln::emulator {

/// The order in which clusters start: of one block each, as long as a launch does not say otherwise.
class StartOrder {
 public:
  StartOrder(std::uint32_t clusters, std::uint64_t seed);
  [[nodiscard]] std::uint32_t at(std::uint32_t position) const {
    return order_.empty() ? position : order_[position];
  }

 private:
  std::vector<std::uint32_t> order_;
};

/// The blocks of a cluster, which is used for one cluster of the grid after the other.
class Team {
 public:
  explicit Team(Grid& grid);
  void start(std::uint32_t cluster);
  [[nodiscard]] Cluster& cluster() { return *cluster_; }
  [[nodiscard]] Block& first() { return *blocks_.front(); }

 private:
  Grid& grid_;
  std::unique_ptr<Cluster> cluster_ = std::make_unique<Cluster>();
  std::vector<std::unique_ptr<Block>> blocks_;
};

/// The clusters that are on their way together. A place is used for one after the other.
class Residents {
 public:
  Residents(Grid& grid, const StartOrder& order, std::uint32_t places);

  /// Begins clusters where there is place. All blocks that are on their way, in the order of their places.
  std::vector<Block*> fill();
  /// Clusters that have not begun.
  [[nodiscard]] std::uint32_t not_begun() const { return clusters_ - next_; }
  /// Twice as many places, but no more than `most` or than there are clusters for.
  void grow(std::uint32_t most);

 private:
  struct Place {
    Team team;
    bool runs = false;
  };

  void add(std::uint32_t places);

  Grid& grid_;
  const StartOrder& order_;
  std::vector<Place> places_;
  std::uint32_t clusters_;
  std::uint32_t next_ = 0;  ///< position of the cluster that begins next
};

}  // namespace sparsekiln::emulator
