#include "emulator/program/flow.h"

#include <bit>
#include <cstddef>
#include <utility>

namespace sparsekiln::emulator {
namespace {

using Edges = std::vector<std::vector<std::uint32_t>>;

/// The nodes that can be reached from `start` without those that are `closed`.
std::vector<std::uint32_t> reachable(const Edges& edges, std::uint32_t start,
                                     const std::vector<char>& closed) {
  std::vector<char> seen = closed;
  std::vector<std::uint32_t> found{start};
  seen[start] = 1;
  for (std::size_t next = 0; next < found.size(); ++next)
    for (const std::uint32_t to : edges[found[next]]) {
      if (seen[to] != 0) continue;
      seen[to] = 1;
      found.push_back(to);
    }
  return found;
}

/// Nodes in the order in which a depth-first search from `start` leaves them.
std::vector<std::uint32_t> post_order(const Edges& edges, std::uint32_t start) {
  std::vector<char> seen(edges.size(), 0);
  std::vector<std::uint32_t> order;
  std::vector<std::pair<std::uint32_t, std::size_t>> path{{start, 0}};
  seen[start] = 1;
  while (!path.empty()) {
    auto& [node, next] = path.back();
    if (next == edges[node].size()) {
      order.push_back(node);
      path.pop_back();
      continue;
    }
    const std::uint32_t to = edges[node][next++];
    if (seen[to] != 0) continue;
    seen[to] = 1;
    path.emplace_back(to, 0);
  }
  return order;
}

/// Immediate dominators of what `start` reaches; kNoBlock for the rest and for `start`.
std::vector<std::uint32_t> immediate_dominators(const Edges& successors, const Edges& predecessors,
                                                std::uint32_t start) {
  const std::vector<std::uint32_t> order = post_order(successors, start);
  std::vector<std::uint32_t> number(successors.size(), kNoBlock);
  for (std::uint32_t i = 0; i < order.size(); ++i) number[order[i]] = i;
  std::vector<std::uint32_t> dominator(successors.size(), kNoBlock);
  dominator[start] = start;
  const auto meet = [&](std::uint32_t a, std::uint32_t b) {
    while (a != b) {
      while (number[a] < number[b]) a = dominator[a];
      while (number[b] < number[a]) b = dominator[b];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto node = order.rbegin() + 1; node != order.rend(); ++node) {
      std::uint32_t best = kNoBlock;
      for (const std::uint32_t from : predecessors[*node])
        if (dominator[from] != kNoBlock) best = best == kNoBlock ? from : meet(best, from);
      changed = changed || best != dominator[*node];
      dominator[*node] = best;
    }
  }
  dominator[start] = kNoBlock;
  return dominator;
}

/// Fills in `result` for the blocks of `part`, whose first is the way out that all others lead to.
void post_dominate(std::span<const BasicBlock> blocks, const std::vector<std::uint32_t>& part,
                   std::vector<std::uint32_t>& result) {
  std::vector<std::uint32_t> place(blocks.size(), kNoBlock);
  for (std::uint32_t i = 0; i < part.size(); ++i) place[part[i]] = i;
  Edges forward(part.size());
  Edges backward(part.size());
  for (std::uint32_t i = 0; i < part.size(); ++i)
    for (const std::uint32_t to : blocks[part[i]].successors) {
      if (place[to] == kNoBlock) continue;
      forward[i].push_back(place[to]);
      backward[place[to]].push_back(i);
    }
  const std::vector<std::uint32_t> dominators = immediate_dominators(backward, forward, 0);
  for (std::uint32_t i = 0; i < part.size(); ++i)
    if (dominators[i] != kNoBlock) result[part[i]] = part[dominators[i]];
}

Edges predecessors_of(std::span<const BasicBlock> blocks) {
  Edges predecessors(blocks.size());
  for (std::uint32_t b = 0; b < blocks.size(); ++b)
    for (const std::uint32_t to : blocks[b].successors) predecessors[to].push_back(b);
  return predecessors;
}

/// The block of `exits` that most blocks lead to; the last one if there are many.
std::vector<std::uint32_t> leading_to_main_exit(const Edges& predecessors,
                                                const std::vector<std::uint32_t>& exits,
                                                const std::vector<char>& closed) {
  constexpr std::size_t kWeighed = 32;  // so that hostile code costs no square of its length
  std::vector<std::uint32_t> best;
  const std::size_t first = exits.size() > kWeighed ? exits.size() - kWeighed : 0;
  for (std::size_t i = exits.size(); i-- > first;) {
    std::vector<std::uint32_t> found = reachable(predecessors, exits[i], closed);
    if (found.size() > best.size()) best = std::move(found);
  }
  return best;
}

/// Hands the warp to the lanes that wait on top, if any is left.
void resume(Warp& warp) {
  warp.active = 0;
  while (warp.active == 0 && !warp.diverged.empty()) {
    const Divergence& next = warp.diverged.back();
    warp.active = next.lanes;
    warp.pc = next.pc;
    warp.diverged.pop_back();
  }
}

}  // namespace

std::vector<BasicBlock> basic_blocks(std::span<const Draft> drafts) {
  std::vector<char> leads(drafts.size() + 1, 0);
  leads[0] = 1;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    if (drafts[i].flow == Flow::next) continue;
    leads[i + 1] = 1;
    if (drafts[i].flow == Flow::branch) leads[drafts[i].target] = 1;
  }
  std::vector<BasicBlock> blocks;
  std::vector<std::uint32_t> block_of(drafts.size());
  for (std::uint32_t i = 0; i < drafts.size(); ++i) {
    if (leads[i] != 0) blocks.push_back({.first = i, .last = i});
    block_of[i] = static_cast<std::uint32_t>(blocks.size() - 1);
    blocks.back().last = i + 1;
  }
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    const Draft& last = drafts[blocks[b].last - 1];
    blocks[b].ends_lanes = last.flow == Flow::end;
    if (last.flow == Flow::next || last.guarded()) blocks[b].successors.push_back(b + 1);
    if (last.flow == Flow::branch) blocks[b].successors.push_back(block_of[last.target]);
  }
  return blocks;
}

std::vector<std::uint32_t> immediate_post_dominators(std::span<const BasicBlock> blocks) {
  const Edges predecessors = predecessors_of(blocks);
  std::vector<std::uint32_t> result(blocks.size(), kNoBlock);
  std::vector<char> done(blocks.size(), 0);
  const auto settle = [&](const auto& is_exit) {
    std::vector<std::uint32_t> exits;
    for (std::uint32_t b = 0; b < blocks.size(); ++b)
      if (is_exit(blocks[b])) exits.push_back(b);
    for (;;) {
      std::erase_if(exits, [&](std::uint32_t b) { return done[b] != 0; });
      if (exits.empty()) return;
      const std::vector<std::uint32_t> part = leading_to_main_exit(predecessors, exits, done);
      post_dominate(blocks, part, result);
      for (const std::uint32_t b : part) done[b] = 1;
    }
  };
  settle([](const BasicBlock& block) { return block.successors.empty(); });
  settle([](const BasicBlock& block) { return block.ends_lanes; });
  return result;
}

void branch(Warp& warp, const Instruction& instruction, Mask taken) {
  const auto target = static_cast<std::uint32_t>(instruction.immediate);
  if (taken == warp.active) {
    warp.pc = target;
    return;
  }
  if (target == warp.pc) return;  // both ways are the same
  count_divergence(warp, instruction);
  const auto join = static_cast<std::uint32_t>(instruction.detail);
  // Where an outer branch has the same join, its entry below has all of these lanes already.
  if (join != kNoJoin && (warp.diverged.empty() || warp.diverged.back().join != join))
    warp.diverged.push_back({.pc = join, .join = join, .lanes = warp.active});
  if (target == join) {  // those who branch wait there
    warp.active &= ~taken;
  } else if (warp.pc == join) {
    warp.active = taken;
    warp.pc = target;
  } else {
    warp.diverged.push_back({.pc = target, .join = join, .lanes = taken});
    warp.active &= ~taken;
  }
}

void branch_uniform(Warp& warp, const Instruction& instruction, Mask taken) {
  if (taken != warp.active)
    fault(FaultKind::invalid_operation, warp, instruction, std::countr_zero(warp.active & ~taken),
          "bra.uni that not all active lanes take");
  warp.pc = static_cast<std::uint32_t>(instruction.immediate);
}

void join(Warp& warp, const Instruction& instruction, Mask) {
  if (warp.diverged.empty() || warp.diverged.back().join != static_cast<std::uint32_t>(instruction.immediate))
    return;
  resume(warp);
}

void end_lanes(Warp& warp, const Instruction&, Mask ending) {
  warp.live &= ~ending;
  warp.active &= ~ending;
  for (Divergence& waiting : warp.diverged) waiting.lanes &= ~ending;
  if (warp.active != 0) return;
  resume(warp);
  if (warp.active == 0) warp.state = WarpState::ended;
}

void trap(Warp& warp, const Instruction& instruction, Mask mask) {
  fault(FaultKind::trap, warp, instruction, std::countr_zero(mask), "trap");
}

}  // namespace sparsekiln::emulator
