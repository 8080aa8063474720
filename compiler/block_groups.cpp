#include "compiler/block_groups.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "compiler/halo_box.h"

namespace sparsekiln {
namespace {

/// Blocks of a row or column that are looked at where a group takes it: so the time does not depend on how
/// long it is.
constexpr std::size_t kLookedAt = 64;
/// Pieces of groups beyond those planned for, that others with room are looked for.
constexpr std::size_t kMostMoved = 4096;

/// Variant grouped: tiles of 64 features, in lines of 128 bytes.
GroupShape shape_of_rows(const Config& config) {
  constexpr std::int64_t kLineBytes = 128;
  GroupShape shape;
  shape.out_bytes = shape.in_bytes = config.tile_n * kLineBytes;
  shape.place_bytes = kGroupRingBytes / (config.stages * shape.in_bytes) * shape.in_bytes;
  return shape;
}

/// Variant halo: tiles of positions, and those of x with the border that taps reach.
GroupShape shape_of_positions(const Sddmm& gradient, const Config& config) {
  constexpr std::int64_t kUnit = 1024;  // within which lines are swizzled
  const auto& kernel = gradient.convolution.kernel;
  GroupShape shape;
  shape.piece = {gradient.block.out % (2 * kHaloLine) == 0 ? 2 * kHaloLine : kHaloLine, kHaloLine};
  shape.depths = kernel[0];
  shape.taps = kernel[1] * kernel[2];
  const HaloBox box(gradient.convolution, false, config.tile_n);
  for (std::int32_t tap = 0; tap < shape.taps; ++tap)
    shape.displacements.push_back(box.displacement(gradient.convolution, tap / kernel[2], tap % kernel[2]));
  shape.out_bytes = shape.piece.out / kHaloLine * config.tile_n * kHaloLineBytes;
  shape.in_bytes = box.place_bytes();
  shape.place_bytes = kGroupRingBytes / config.stages / kUnit * kUnit;
  return shape;
}

/// A piece of a block as an edge between its row and its column, which are the nodes of a graph.
struct Edge {
  std::int32_t row = 0;
  std::int32_t col = 0;
  std::int32_t tap = 0;
  std::int32_t dw = 0;
};

std::vector<Edge> edges_of(const Sddmm& gradient, const GroupShape& shape) {
  const auto crow = gradient.layout.crow();
  const auto col = gradient.layout.col();
  const std::int32_t down = shape.down(gradient.block);
  const std::int32_t across = shape.across(gradient.block);
  std::vector<Edge> edges;
  for (std::int32_t row = 0; row < gradient.layout.rows(); ++row)
    for (std::int32_t i = 0; i < down; ++i)
      for (std::int32_t block = crow[static_cast<std::size_t>(row)];
           block < crow[static_cast<std::size_t>(row) + 1]; ++block) {
        const std::int32_t stage = col[static_cast<std::size_t>(block)] / shape.taps;
        const std::int32_t tap = col[static_cast<std::size_t>(block)] % shape.taps;
        for (std::int32_t j = 0; j < across; ++j)
          edges.push_back({row * down + i,
                           (stage / shape.depths * across + j) * shape.depths + stage % shape.depths, tap,
                           (block * gradient.block.out + i * shape.piece.out) * across + j});
      }
  return edges;
}

/// Pairs of edges that share a node, in each part of a graph that hangs together all but one if they are odd:
/// a search in depth pairs, at each node that it leaves, the edges that are left to it, and one of an odd
/// number with the edge that it came by.
class Pairing {
 public:
  using Pair = std::array<std::size_t, 2>;  ///< positions in the list of edges; the second may be kNone
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  explicit Pairing(std::vector<std::array<std::size_t, 2>> edges) : ends_(std::move(edges)) {
    for (std::size_t edge = 0; edge < ends_.size(); ++edge)
      for (const std::size_t node : ends_[edge]) of_node_[node].push_back(edge);
    seen_.resize(ends_.size());
    for (const auto& [node, edges_of_it] : of_node_)
      if (depth_.count(node) == 0) leave(node, kNone, 0);
  }
  [[nodiscard]] std::vector<Pair> pairs() && { return std::move(pairs_); }

 private:
  /// Whether the edge that the search came by is in a pair already.
  bool leave(std::size_t node, std::size_t by, std::size_t depth) {
    depth_[node] = depth;
    std::vector<std::size_t> left;
    for (const std::size_t edge : of_node_[node]) {
      if (seen_[edge]) continue;
      seen_[edge] = true;
      const std::size_t other = ends_[edge][0] == node ? ends_[edge][1] : ends_[edge][0];
      if (depth_.count(other) != 0 || !leave(other, edge, depth + 1)) left.push_back(edge);
    }
    if (left.size() % 2 == 1 && by != kNone) left.push_back(by);
    const bool takes_by = !left.empty() && left.back() == by && by != kNone;
    for (std::size_t at = 0; at < left.size(); at += 2)
      pairs_.push_back({left[at], at + 1 < left.size() ? left[at + 1] : kNone});
    return takes_by;
  }

  std::vector<std::array<std::size_t, 2>> ends_;
  std::map<std::size_t, std::vector<std::size_t>> of_node_;
  std::map<std::size_t, std::size_t> depth_;
  std::vector<bool> seen_;
  std::vector<Pair> pairs_;
};

/// Pairs of edges that have the same first node, all but one of each node where their number is odd. Edges
/// are in order.
std::vector<Pairing::Pair> pairs_in_rows(const std::vector<std::array<std::size_t, 2>>& ends) {
  std::vector<Pairing::Pair> pairs;
  for (std::size_t edge = 0; edge < ends.size(); ++edge) {
    const bool follows = edge > 0 && ends[edge - 1][0] == ends[edge][0];
    if (follows && pairs.back()[1] == Pairing::kNone)
      pairs.back()[1] = edge;
    else
      pairs.push_back({edge, Pairing::kNone});
  }
  return pairs;
}

std::vector<Pairing::Pair> pairs_of(const GroupShape& shape, std::vector<std::array<std::size_t, 2>> ends) {
  return shape.pairs_in_rows() ? pairs_in_rows(ends) : Pairing(std::move(ends)).pairs();
}

/// Takes the edges of a graph in groups.
class Grouping {
 public:
  /// Rows are nodes 0, 1 …, columns those after them.
  Grouping(const std::vector<Edge>& edges, std::int32_t rows, std::int32_t cols, std::int32_t most_edges,
           const GroupShape& shape)
      : edges_(edges),
        shape_(shape),
        rows_(rows),
        most_edges_(static_cast<std::size_t>(most_edges)),
        rows_are_short_(rows >= cols),
        taken_(edges.size()),
        of_node_(static_cast<std::size_t>(rows + cols)),
        in_group_(of_node_.size()),
        shared_(of_node_.size()),
        left_(of_node_.size()) {
    for (std::size_t edge = 0; edge < edges.size(); ++edge)
      for (const std::size_t node : {row_of(edge), col_of(edge)}) {
        of_node_[node].push_back(edge);
        ++left_[node];
      }
    for (std::size_t node = 0; node < left_.size(); ++node) offer(node);
  }

  /// Edges of each group: about `planned` groups.
  std::vector<std::vector<std::size_t>> all(std::int64_t planned) {
    std::vector<std::vector<std::size_t>> groups;
    for (std::size_t remaining = edges_.size(); remaining > 0;) {
      const std::int64_t missing =
          std::max<std::int64_t>(planned - static_cast<std::int64_t>(groups.size()), 1);
      const std::size_t mean =
          (remaining + static_cast<std::size_t>(missing) - 1) / static_cast<std::size_t>(missing);
      groups.push_back(next(std::min(mean, most_edges_)));
      remaining -= groups.back().size();
    }
    if (static_cast<std::int64_t>(groups.size()) > planned) fill(groups, static_cast<std::size_t>(planned));
    return groups;
  }

 private:
  [[nodiscard]] std::size_t row_of(std::size_t edge) const {
    return static_cast<std::size_t>(edges_[edge].row);
  }
  [[nodiscard]] std::size_t col_of(std::size_t edge) const {
    return static_cast<std::size_t>(rows_ + edges_[edge].col);
  }
  [[nodiscard]] bool is_row(std::size_t node) const { return node < static_cast<std::size_t>(rows_); }
  /// Whether it is of the kind, row or column, that has fewer edges.
  [[nodiscard]] bool is_short(std::size_t node) const { return is_row(node) == rows_are_short_; }

  void offer(std::size_t node) {
    if (is_short(node) && left_[node] > 0) seeds_.emplace(left_[node], node);
  }
  /// The short node with the fewest edges.
  std::size_t seed() {
    while (left_[seeds_.top().second] != seeds_.top().first || in_group_[seeds_.top().second]) seeds_.pop();
    return seeds_.top().second;
  }
  [[nodiscard]] bool has_seed() {
    while (!seeds_.empty() &&
           (left_[seeds_.top().second] != seeds_.top().first || in_group_[seeds_.top().second]))
      seeds_.pop();
    return !seeds_.empty();
  }

  std::vector<std::size_t> next(std::size_t wanted) {
    std::vector<std::size_t> group;
    std::vector<std::size_t> nodes;
    std::vector<std::size_t> candidates;
    for (std::int64_t bytes = 0; group.size() < wanted; bytes += bytes_of(nodes.back())) {
      const std::size_t best = best_of(candidates, wanted - group.size());
      if (best != kNone) {
        if (bytes + bytes_of(best) > shape_.place_bytes) break;
        nodes.push_back(best);
      } else {
        if (bytes + bytes_of_edge() > shape_.place_bytes || !has_seed()) break;
        nodes.push_back(seed());
      }
      take(nodes.back(), wanted, group, candidates);
    }
    while (pairs_of(group).size() > most_edges_ / 2) {
      give_back(group.back());
      group.pop_back();
    }
    for (const std::size_t node : nodes) in_group_[node] = false;
    for (const std::size_t node : candidates) shared_[node] = 0;
    for (const std::size_t node : nodes) offer(node);
    return group;
  }

  [[nodiscard]] std::size_t best_of(const std::vector<std::size_t>& candidates, std::size_t wanted) const {
    std::size_t best = kNone;
    std::pair<std::size_t, std::int64_t> of_best;
    for (const std::size_t node : candidates) {
      if (in_group_[node] || shared_[node] == 0) continue;
      const auto left = static_cast<std::int64_t>(left_[node]);
      const std::pair of_node(std::min(shared_[node], wanted), is_short(node) ? -left : left);
      if (best == kNone || of_node > of_best) {
        best = node;
        of_best = of_node;
      }
    }
    return best;
  }

  /// Puts a node into the group, and as many of its edges to nodes of the group as are wanted.
  void take(std::size_t node, std::size_t wanted, std::vector<std::size_t>& group,
            std::vector<std::size_t>& candidates) {
    in_group_[node] = true;
    std::vector<std::size_t>& all = of_node_[node];
    std::erase_if(all, [&](std::size_t edge) { return taken_[edge]; });
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    std::size_t looked_at = 0;
    for (const std::size_t edge : all) {
      const std::size_t other = is_row(node) ? col_of(edge) : row_of(edge);
      if (in_group_[other]) {
        if (group.size() == wanted) continue;
        group.push_back(edge);
        taken_[edge] = true;
        --left_[node];
        --left_[other];
        offer(other);
      } else if (looked_at++ < kLookedAt) {
        if (shared_[other]++ == 0) candidates.push_back(other);
      }
    }
  }

  void give_back(std::size_t edge) {
    taken_[edge] = false;
    for (const std::size_t node : {row_of(edge), col_of(edge)}) {
      ++left_[node];
      of_node_[node].push_back(edge);
      offer(node);
    }
  }

  /// Moves the edges of groups after the first `planned` to those that have room, where that brings the
  /// fewest nodes.
  void fill(std::vector<std::vector<std::size_t>>& groups, std::size_t planned) {
    std::vector<std::size_t> moved;
    for (std::size_t group = planned; group < groups.size(); ++group)
      moved.insert(moved.end(), groups[group].begin(), groups[group].end());
    if (moved.size() > kMostMoved) return;
    groups.resize(planned);
    std::vector<std::size_t> unplaced;
    for (const std::size_t edge : moved) {
      std::size_t best = kNone;
      std::int64_t least = shape_.place_bytes + 1;
      for (std::size_t group = 0; group < planned; ++group) {
        if (groups[group].size() == most_edges_) continue;
        groups[group].push_back(edge);
        const std::int64_t bytes = bytes_of_nodes(groups[group]);
        const bool fits = bytes < least && pairs_of(groups[group]).size() <= most_edges_ / 2;
        groups[group].pop_back();
        if (fits) {
          best = group;
          least = bytes;
        }
      }
      if (best == kNone)
        unplaced.push_back(edge);
      else
        groups[best].push_back(edge);
    }
    for (const std::size_t edge : unplaced) {
      // In the worst case each piece has two tiles and a pair of its own.
      const std::size_t size = groups.back().size() + 1;
      const bool fits = groups.size() > planned && 2 * size <= most_edges_ &&
                        static_cast<std::int64_t>(size) * bytes_of_edge() <= shape_.place_bytes;
      if (!fits) groups.emplace_back();
      groups.back().push_back(edge);
    }
  }

  [[nodiscard]] std::vector<Pairing::Pair> pairs_of(std::vector<std::size_t> group) const {
    if (shape_.pairs_in_rows()) std::sort(group.begin(), group.end());
    std::vector<std::array<std::size_t, 2>> ends;
    for (const std::size_t edge : group) ends.push_back({row_of(edge), col_of(edge)});
    return sparsekiln::pairs_of(shape_, std::move(ends));
  }
  [[nodiscard]] std::int64_t bytes_of(std::size_t node) const {
    return is_row(node) ? shape_.out_bytes : shape_.in_bytes;
  }
  [[nodiscard]] std::int64_t bytes_of_edge() const { return shape_.out_bytes + shape_.in_bytes; }
  [[nodiscard]] std::int64_t bytes_of_nodes(const std::vector<std::size_t>& group) const {
    std::vector<std::size_t> nodes;
    for (const std::size_t edge : group) nodes.insert(nodes.end(), {row_of(edge), col_of(edge)});
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    std::int64_t bytes = 0;
    for (const std::size_t node : nodes) bytes += bytes_of(node);
    return bytes;
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  const std::vector<Edge>& edges_;
  const GroupShape& shape_;
  std::int32_t rows_;
  std::size_t most_edges_;
  bool rows_are_short_;
  std::vector<bool> taken_;
  std::vector<std::vector<std::size_t>> of_node_;
  std::vector<bool> in_group_;
  std::vector<std::size_t> shared_;  ///< edges to nodes of the group, of those that were looked at
  std::vector<std::size_t> left_;    ///< edges that no group has
  using Seed = std::pair<std::size_t, std::size_t>;                     // edges left, node
  std::priority_queue<Seed, std::vector<Seed>, std::greater<>> seeds_;  ///< entries may be out of date
};

BlockGroup group_of(const std::vector<Edge>& edges, const std::vector<std::size_t>& group) {
  BlockGroup result;
  for (const std::size_t edge : group) {
    result.outs.push_back(edges[edge].row);
    result.ins.push_back(edges[edge].col);
  }
  for (std::vector<std::int32_t>* tiles : {&result.outs, &result.ins}) {
    std::sort(tiles->begin(), tiles->end());
    tiles->erase(std::unique(tiles->begin(), tiles->end()), tiles->end());
  }
  return result;
}

/// Has each tile of dy summed by the first group that reads it and sums fewer than `most`, or else by one
/// that only reads it for that.
void share_out_sums(std::vector<BlockGroup>& groups, std::int32_t tiles, std::int32_t most,
                    const GroupShape& shape) {
  const auto is_full = [&](const BlockGroup& group) {
    return group.summed == most || group.bytes(shape) + shape.out_bytes > shape.place_bytes;
  };
  std::vector<bool> summed(static_cast<std::size_t>(tiles));
  for (BlockGroup& group : groups) {
    const auto begin = std::stable_partition(group.outs.begin(), group.outs.end(), [&](std::int32_t tile) {
      return !summed[static_cast<std::size_t>(tile)];
    });
    group.summed = static_cast<std::int32_t>(begin - group.outs.begin());
    for (auto at = group.outs.begin(); at != begin; ++at) summed[static_cast<std::size_t>(*at)] = true;
  }
  std::size_t next = 0;
  for (std::int32_t tile = 0; tile < tiles; ++tile) {
    if (summed[static_cast<std::size_t>(tile)]) continue;
    while (next < groups.size() && is_full(groups[next])) ++next;
    if (next == groups.size()) groups.emplace_back();
    BlockGroup& group = groups[next];
    group.outs.insert(group.outs.begin() + group.summed, tile);
    ++group.summed;
  }
}

/// The pairs of a group's pieces.
void pair(BlockGroup& group, const GroupShape& shape) {
  const bool in_rows = shape.pairs_in_rows();
  const auto where = [&](const BlockGroup::Piece& piece) {
    return std::tuple(piece.out, piece.in, shape.displacements[static_cast<std::size_t>(piece.tap)]);
  };
  if (in_rows)
    std::sort(group.pieces.begin(), group.pieces.end(),
              [&](const BlockGroup::Piece& one, const BlockGroup::Piece& other) {
                return where(one) < where(other);
              });
  std::vector<std::array<std::size_t, 2>> ends;
  for (const BlockGroup::Piece& piece : group.pieces)
    ends.push_back(
        {static_cast<std::size_t>(piece.out), group.outs.size() + static_cast<std::size_t>(piece.in)});
  for (const auto& [one, other] : pairs_of(shape, std::move(ends))) {
    const auto first = static_cast<std::int32_t>(one);
    const auto second = other == Pairing::kNone ? BlockGroup::kNone : static_cast<std::int32_t>(other);
    const bool in_order = second == BlockGroup::kNone || in_rows ||
                          group.pieces[one].out < group.pieces[other].out ||
                          group.pieces[one].in < group.pieces[other].in;
    group.pairs.push_back(in_order ? BlockGroup::Pair{first, second} : BlockGroup::Pair{second, first});
  }
}

std::int32_t place_of(const std::vector<std::int32_t>& tiles, std::int32_t tile) {
  return static_cast<std::int32_t>(std::find(tiles.begin(), tiles.end(), tile) - tiles.begin());
}

}  // namespace

GroupShape group_shape(const Sddmm& gradient, const Config& config) {
  return config.variant == Variant::halo ? shape_of_positions(gradient, config) : shape_of_rows(config);
}

std::int64_t BlockGroup::bytes(const GroupShape& shape) const {
  return static_cast<std::int64_t>(outs.size()) * shape.out_bytes +
         static_cast<std::int64_t>(ins.size()) * shape.in_bytes;
}

std::int64_t pieces_of(const Sddmm& gradient, const GroupShape& shape) {
  return gradient.layout.blocks() * shape.down(gradient.block) * shape.across(gradient.block);
}

std::int64_t planned_groups(std::int64_t pieces, std::int64_t ctas, std::int64_t chunks,
                            std::int32_t most_pieces) {
  const std::int64_t fewest = std::max<std::int64_t>((pieces + most_pieces - 1) / most_pieces, 1);
  const std::int64_t slices = std::max<std::int64_t>(std::min(ctas / fewest, chunks / kChunksOfSlice), 1);
  const std::int64_t waves = (fewest + ctas - 1) / ctas;
  return std::clamp<std::int64_t>(waves * (ctas / slices), 1, std::max<std::int64_t>(pieces, 1));
}

std::int64_t group_bound(const Sddmm& gradient, const Config& config) {
  // A group has a piece, or a tile of dy that it sums.
  const GroupShape shape = group_shape(gradient, config);
  const std::int64_t tiles = std::int64_t{gradient.layout.rows()} * shape.down(gradient.block);
  return pieces_of(gradient, shape) + (gradient.bias_gradient ? tiles : 0);
}

std::vector<BlockGroup> make_block_groups(const Sddmm& gradient, const Target& target, const Config& config) {
  const GroupShape shape = group_shape(gradient, config);
  const std::int32_t rows = gradient.layout.rows() * shape.down(gradient.block);
  const std::int32_t cols = gradient.layout.cols() / shape.taps * shape.across(gradient.block);
  const std::vector<Edge> edges = edges_of(gradient, shape);
  const std::int64_t chunks = gradient.tiled_rows(gradient.batch.bound(), config) / config.tile_n;
  const std::int64_t planned =
      planned_groups(static_cast<std::int64_t>(edges.size()), std::int64_t{target.workers} * config.split,
                     chunks, config.rows);
  const std::vector<std::vector<std::size_t>> found =
      Grouping(edges, rows, cols, config.rows, shape).all(planned);
  std::vector<BlockGroup> groups;
  for (const std::vector<std::size_t>& group : found) groups.push_back(group_of(edges, group));
  if (gradient.bias_gradient) share_out_sums(groups, rows, config.rows, shape);
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const std::size_t edge : found[i])
      groups[i].pieces.push_back({place_of(groups[i].outs, edges[edge].row),
                                  place_of(groups[i].ins, edges[edge].col), edges[edge].tap, edges[edge].dw});
  for (BlockGroup& group : groups) pair(group, shape);
  return groups;
}

}  // namespace sparsekiln
