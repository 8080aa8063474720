#include "emulator/program/rows.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "emulator/machine/warp.h"
#include "emulator/program/async_registers.h"

namespace sparsekiln::emulator {
namespace {

/// A set of small numbers.
class BitSet {
 public:
  explicit BitSet(std::size_t size) : words_((size + 63) / 64, 0) {}
  void insert(std::uint32_t i) { words_[i / 64] |= std::uint64_t{1} << (i % 64); }
  [[nodiscard]] bool has(std::uint32_t i) const { return (words_[i / 64] >> (i % 64) & 1) != 0; }
  /// this |= (other − except); whether that added anything.
  bool add(const BitSet& other, const BitSet& except) {
    std::uint64_t added = 0;
    for (std::size_t w = 0; w < words_.size(); ++w) {
      const std::uint64_t more = other.words_[w] & ~except.words_[w] & ~words_[w];
      words_[w] |= more;
      added |= more;
    }
    return added != 0;
  }
  template <class Use>
  void each(Use use) const {
    for (std::size_t w = 0; w < words_.size(); ++w)
      for (std::uint64_t left = words_[w]; left != 0; left &= left - 1)
        use(static_cast<std::uint32_t>(64 * w + std::countr_zero(left)));
  }

 private:
  std::vector<std::uint64_t> words_;
};

/// The stretch of code in which a row is needed, both ends included.
struct Stretch {
  std::uint32_t row = 0;
  std::uint32_t first = 0xffffffffu;
  std::uint32_t last = 0;

  void include(std::uint32_t position) {
    first = std::min(first, position);
    last = std::max(last, position);
  }
  [[nodiscard]] bool used() const { return first <= last; }
};

template <class Use>
void each_read(const Draft& draft, Use use) {
  for (const std::uint32_t row : draft.read) use(row);
  if (draft.guarded()) use(draft.instruction.guard);
}

/// Rows that one block writes and the same block reads are of no interest to others: `number` gives the rest
/// their place in the sets, kNoRow to these.
struct Crossing {
  std::vector<std::uint32_t> number;
  std::vector<std::uint32_t> rows;  ///< by number
};

Crossing crossing_rows(std::span<const Draft> drafts, std::span<const BasicBlock> blocks,
                       std::span<const VirtualRow> rows) {
  Crossing crossing{.number = std::vector<std::uint32_t>(rows.size(), kNoRow)};
  std::vector<std::uint32_t> written_in(rows.size(), kNoBlock);
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    for (std::uint32_t i = blocks[b].first; i < blocks[b].last; ++i) {
      each_read(drafts[i], [&](std::uint32_t row) {
        if (rows[row].fixed || written_in[row] == b || crossing.number[row] != kNoRow) return;
        crossing.number[row] = static_cast<std::uint32_t>(crossing.rows.size());
        crossing.rows.push_back(row);
      });
      if (!drafts[i].guarded())
        for (const std::uint32_t row : drafts[i].written) written_in[row] = b;
    }
  }
  return crossing;
}

/// The rows that are live where blocks begin and end.
struct Liveness {
  std::vector<BitSet> in;
  std::vector<BitSet> out;
};

Liveness live_rows(std::span<const Draft> drafts, std::span<const BasicBlock> blocks,
                   const Crossing& crossing) {
  const BitSet none(crossing.rows.size());
  Liveness live{.in = std::vector<BitSet>(blocks.size(), none),
                .out = std::vector<BitSet>(blocks.size(), none)};
  std::vector<BitSet> killed(blocks.size(), none);
  std::vector<std::vector<std::uint32_t>> predecessors(blocks.size());
  std::vector<std::uint32_t> work;
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    for (const std::uint32_t to : blocks[b].successors) predecessors[to].push_back(b);
    for (std::uint32_t i = blocks[b].first; i < blocks[b].last; ++i) {
      each_read(drafts[i], [&](std::uint32_t row) {
        const std::uint32_t n = crossing.number[row];
        if (n != kNoRow && !killed[b].has(n)) live.in[b].insert(n);
      });
      if (drafts[i].guarded()) continue;
      for (const std::uint32_t row : drafts[i].written)
        if (crossing.number[row] != kNoRow) killed[b].insert(crossing.number[row]);
    }
    work.push_back(b);
  }
  std::vector<char> waiting(blocks.size(), 1);
  while (!work.empty()) {  // the last blocks first
    const std::uint32_t b = work.back();
    work.pop_back();
    waiting[b] = 0;
    for (const std::uint32_t to : blocks[b].successors) live.out[b].add(live.in[to], none);
    if (!live.in[b].add(live.out[b], killed[b])) {
      // What the block itself reads was put in before: its predecessors hear of it when their own turn comes.
      continue;
    }
    for (const std::uint32_t from : predecessors[b]) {
      if (waiting[from] != 0) continue;
      waiting[from] = 1;
      work.push_back(from);
    }
  }
  return live;
}

std::vector<Stretch> stretches(std::span<const Draft> drafts, std::span<const BasicBlock> blocks,
                               std::span<const VirtualRow> rows, const Crossing& crossing,
                               const Liveness& live) {
  std::vector<Stretch> result(rows.size());
  for (std::uint32_t row = 0; row < rows.size(); ++row) result[row].row = row;
  for (std::uint32_t i = 0; i < drafts.size(); ++i) {
    each_read(drafts[i], [&](std::uint32_t row) { result[row].include(i); });
    for (const std::uint32_t row : drafts[i].written) result[row].include(i);
  }
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    live.in[b].each([&](std::uint32_t n) { result[crossing.rows[n]].include(blocks[b].first); });
    live.out[b].each([&](std::uint32_t n) { result[crossing.rows[n]].include(blocks[b].last - 1); });
  }
  const auto end = static_cast<std::uint32_t>(drafts.size());
  for (std::uint32_t row = 0; row < rows.size(); ++row) {
    if (!rows[row].fixed || !result[row].used()) continue;
    result[row].first = 0;
    result[row].last = end;
  }
  return result;
}

std::uint32_t slot_bytes(const VirtualRow& row) {
  return row.bytes == 0 ? static_cast<std::uint32_t>(sizeof(Mask))
                        : static_cast<std::uint32_t>(row.bytes * kLanes);
}

/// Hands out places in the register file; those given back are taken again first, the latest before others,
/// which the host's cache still holds.
class Places {
 public:
  explicit Places(std::uint32_t first) : end_(first) {}
  std::uint32_t take(std::uint32_t bytes) {
    std::vector<std::uint32_t>& free = free_[index(bytes)];
    if (free.empty()) grow(bytes, free);
    const std::uint32_t place = free.back();
    free.pop_back();
    return place;
  }
  void give_back(std::uint32_t place, std::uint32_t bytes) { free_[index(bytes)].push_back(place); }
  [[nodiscard]] std::uint32_t bytes() const { return end_; }

 private:
  static constexpr std::uint32_t kLine = 64;

  static std::size_t index(std::uint32_t bytes) { return bytes < kLine ? 0 : std::bit_width(bytes / kLine); }
  /// Masks share a line of 64 bytes.
  void grow(std::uint32_t bytes, std::vector<std::uint32_t>& free) {
    const std::uint32_t line = std::max(bytes, kLine);
    for (std::uint32_t at = line; at >= bytes; at -= bytes) free.push_back(end_ + at - bytes);
    end_ += line;
  }

  std::vector<std::uint32_t> free_[5];
  std::uint32_t end_;
};

/// What a wgmma accesses late may be in no place that another row has after it. `order` keeps the others.
void place_async_registers(std::span<const VirtualRow> rows, std::vector<Stretch>& order, RowPlan& plan) {
  std::erase_if(order, [&](const Stretch& stretch) {
    if (!rows[stretch.row].async) return false;
    plan.offset[stretch.row] = plan.async_registers++ * kAsyncRowBytes;
    return true;
  });
}

}  // namespace

RowPlan plan_rows(std::span<const Draft> drafts, std::span<const BasicBlock> blocks,
                  std::span<const VirtualRow> rows) {
  const Crossing crossing = crossing_rows(drafts, blocks, rows);
  const Liveness live = live_rows(drafts, blocks, crossing);
  std::vector<Stretch> order = stretches(drafts, blocks, rows, crossing, live);

  RowPlan plan{.offset = std::vector<std::uint32_t>(rows.size(), kNoRow)};
  live.in[0].each([&](std::uint32_t n) {
    plan.zeroed.push_back(crossing.rows[n]);
    order[crossing.rows[n]].first = 0;
  });
  std::erase_if(order, [](const Stretch& stretch) { return !stretch.used(); });
  std::sort(order.begin(), order.end(), [](const Stretch& a, const Stretch& b) {
    return a.first != b.first ? a.first < b.first : a.row < b.row;
  });
  place_async_registers(rows, order, plan);
  std::vector<std::vector<std::uint32_t>> ending(drafts.size() + 1);
  Places places(plan.async_registers * kAsyncRowBytes);
  std::uint32_t position = 0;
  for (const Stretch& stretch : order) {
    for (; position < stretch.first; ++position)
      for (const std::uint32_t row : ending[position])
        places.give_back(plan.offset[row], slot_bytes(rows[row]));
    plan.offset[stretch.row] = places.take(slot_bytes(rows[stretch.row]));
    ending[stretch.last].push_back(stretch.row);
  }
  plan.bytes = places.bytes();
  return plan;
}

}  // namespace sparsekiln::emulator
