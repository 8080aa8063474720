#include "emulator/machine/residents.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sparsekiln::emulator {
namespace {

/// Grids with more clusters begin with them in their own order.
constexpr std::uint32_t kMostShuffled = 1u << 22;

}  // namespace

StartOrder::StartOrder(std::uint32_t clusters, std::uint64_t seed) {
  if (clusters > kMostShuffled || clusters < 2) return;
  order_.resize(clusters);
  std::iota(order_.begin(), order_.end(), 0u);
  Random random(mixed(seed));
  for (std::uint32_t left = clusters; left > 1; --left)
    std::swap(order_[left - 1], order_[random.below(left)]);
}

Team::Team(Grid& grid) : grid_(grid) {
  for (std::uint32_t rank = 0; rank < grid.cluster_size(); ++rank) {
    blocks_.push_back(std::make_unique<Block>(grid, *cluster_, rank));
    cluster_->blocks.push_back(blocks_.back().get());
  }
}

void Team::start(std::uint32_t cluster) {
  cluster_->start();
  for (std::uint32_t rank = 0; rank < grid_.cluster_size(); ++rank)
    blocks_[rank]->start(grid_.clustered() ? grid_.block_of(cluster, rank) : cluster);
}

Residents::Residents(Grid& grid, const StartOrder& order, std::uint32_t places)
    : grid_(grid), order_(order), clusters_(grid.blocks / grid.cluster_size()) {
  add(places);
}

std::vector<Block*> Residents::fill() {
  std::vector<Block*> running;
  for (Place& place : places_) {
    Cluster& cluster = place.team.cluster();
    place.runs = place.runs && !cluster.ended();
    if (!place.runs && next_ < clusters_) {
      place.team.start(order_.at(next_++));
      place.runs = true;
    }
    if (!place.runs) continue;
    for (Block* block : cluster.blocks)
      if (!block->finished()) running.push_back(block);
  }
  return running;
}

void Residents::grow(std::uint32_t most) {
  const auto size = static_cast<std::uint32_t>(places_.size());
  add(std::min({size, not_begun(), most - std::min(most, size)}));
}

void Residents::add(std::uint32_t places) {
  for (; places != 0; --places) places_.push_back({.team = Team(grid_)});
}

}  // namespace sparsekiln::emulator
