#include "emulator/machine/bulk_copy.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "emulator/machine/async_proxy.h"
#include "emulator/machine/block.h"
#include "emulator/machine/bulk_groups.h"
#include "emulator/machine/traffic.h"

namespace sparsekiln::emulator {
namespace {

constexpr std::uint32_t kChunk = 16;

/// A run whose global bytes were found.
struct Piece {
  std::byte* host = nullptr;
  std::uint32_t offset = 0;  ///< in the box
  std::uint32_t bytes = 0;
};

/// Calls use(offset in shared memory, offset in the run, bytes) for parts of a run that the swizzle leaves
/// together. The box begins at `base` of shared memory.
template <class Use>
[[gnu::always_inline]] inline void each_part(Swizzle swizzle, std::uint32_t base, std::uint32_t offset,
                                             std::uint32_t bytes, Use use) {
  if (swizzle == Swizzle::none) {
    use(base + offset, 0u, bytes);
    return;
  }
  for (std::uint32_t done = 0; done < bytes;) {
    const std::uint32_t address = kSharedBase + base + offset + done;
    const std::uint32_t part = std::min(kChunk - address % kChunk, bytes - done);
    if (part == kChunk)
      use(swizzled(swizzle, address) - kSharedBase, done, kChunk);  // a constant to the compiler
    else
      use(swizzled(swizzle, address) - kSharedBase, done, part);
    done += part;
  }
}

/// Calls use(offset, bytes) for the shared memory of a run, in as few parts as possible: a swizzle exchanges
/// nothing beyond its span.
template <class Use>
void each_range(const BulkBox& box, std::uint32_t base, const BoxRun& run, Use use) {
  const std::uint32_t span = span_of(box.swizzle);
  if (span == 0 || ((base + run.offset) % span == 0 && run.bytes % span == 0))
    use(base + run.offset, run.bytes);
  else
    each_part(box.swizzle, base, run.offset, run.bytes,
              [&](std::uint32_t offset, std::uint32_t, std::uint32_t bytes) { use(offset, bytes); });
}

/// memcpy of whole elements, with what the type changes on the way.
void convert(TensorElement element, std::byte* to, const std::byte* from, std::uint32_t bytes) {
  for (std::uint32_t at = 0; at < bytes; at += 4) {
    std::uint32_t bits;
    std::memcpy(&bits, from + at, 4);
    bits = on_load(element, bits);
    std::memcpy(to + at, &bits, 4);
  }
}

void fill_with(std::byte* to, std::uint32_t bytes, std::uint64_t bits, std::uint32_t element) {
  if (bits == 0)
    std::memset(to, 0, bytes);
  else
    for (std::uint32_t at = 0; at < bytes; at += element) std::memcpy(to + at, &bits, element);
}

void combine_all(const Reduction& reduction, std::byte* to, const std::byte* from, std::uint32_t bytes) {
  for (std::uint32_t at = 0; at < bytes; at += reduction.bytes) reduction.combine(to + at, from + at);
}

AsyncIssue issue_of(const BulkIssuer& issuer, const Agent& agent) {
  return {.warp = issuer.warp, .instruction = issuer.instruction, .lane = issuer.lane, .agent = agent};
}

Agent agent_of(const BulkIssuer& issuer, const BulkTarget& target) {
  return mbarrier_agent(issuer.warp, issuer.instruction, issuer.lane, *target.block, target.barrier);
}

/// The global bytes of all runs, checked.
std::vector<Piece> find_pieces(const AsyncIssue& issue, const BulkBox& box, AccessKind kind) {
  std::vector<Piece> pieces;
  pieces.reserve(box.runs.size());
  for (const BoxRun& run : box.runs)
    pieces.push_back({touch_global(issue, run.address, run.bytes, kind), run.offset, run.bytes});
  return pieces;
}

void count(const BulkIssuer& issuer, const BulkBox& box, std::uint32_t shared_bytes) {
  if (!issuer.warp.block->grid.checks.counters) return;
  LineCounters& counters = counters_of(issuer.warp, issuer.instruction);
  if (!box.runs.empty()) ++counters.global_requests;
  for (const BoxRun& run : box.runs) count_global_range(counters, run.address, run.bytes);
  count_shared_range(counters, shared_bytes);
}

/// Sends an operation on its way.
void send_from(const BulkIssuer& issuer, std::unique_ptr<AsyncOperation> operation) {
  operation->pc = pc_of(issuer.warp, issuer.instruction);
  send(issuer.warp, std::move(operation));
}

/// Faults where the block that a copy is for has ended before the copy lands.
void check_alive(const BulkTarget& target, const Site& issued) {
  if (target.block->ended())
    throw Fault(FaultKind::invalid_operation,
                std::string(name(FaultKind::invalid_operation)) +
                    ": data arrive in shared memory of a block that has ended; " + describe(issued));
}

class BulkLoad final : public AsyncOperation {
 public:
  BulkLoad(BulkBox box, std::vector<Piece> pieces, std::span<const BulkTarget> targets, const Site& issued,
           const Block* issuer)
      : box_(std::move(box)),
        pieces_(std::move(pieces)),
        targets_(targets.begin(), targets.end()),
        issued_(issued),
        issuer_(issuer) {}

  void land() override {
    for (const BulkTarget& target : targets_) {
      check_alive(target, issued_);
      fill(target);
      ++target.block->progress;
      complete_transactions(*target.block, target.barrier, box_.bytes);
    }
  }
  [[nodiscard]] bool reaches_peers() const override {
    return std::any_of(targets_.begin(), targets_.end(),
                       [&](const BulkTarget& target) { return target.block != issuer_; });
  }
  [[nodiscard]] bool fills_shared() const override { return true; }

 private:
  void fill(const BulkTarget& target) const {
    std::byte* const shared = target.block->shared;
    std::uint32_t inside = 0;
    for (const Piece& piece : pieces_) inside += piece.bytes;
    if (inside != box_.bytes)
      fill_with(shared + target.offset, box_.bytes, box_.fill, bytes_of(box_.element));
    const bool changes = converts(box_.element);
    for (const Piece& piece : pieces_)
      each_part(box_.swizzle, target.offset, piece.offset, piece.bytes,
                [&](std::uint32_t offset, std::uint32_t done, std::uint32_t bytes) {
                  if (changes)
                    convert(box_.element, shared + offset, piece.host + done, bytes);
                  else
                    std::memcpy(shared + offset, piece.host + done, bytes);
                });
  }

  BulkBox box_;
  std::vector<Piece> pieces_;
  std::vector<BulkTarget> targets_;
  Site issued_;
  const Block* issuer_;
};

/// A copy between blocks of a cluster.
class BulkSend final : public AsyncOperation {
 public:
  BulkSend(const Block& from, std::uint32_t offset, std::uint32_t bytes, const BulkTarget& target,
           const Reduction* reduction, const Site& issued)
      : from_(from),
        offset_(offset),
        bytes_(bytes),
        target_(target),
        reduction_(reduction),
        issued_(issued) {}

  void land() override {
    check_alive(target_, issued_);
    std::byte* const to = target_.block->shared + target_.offset;
    const std::byte* const from = from_.shared + offset_;
    if (reduction_ != nullptr)
      combine_all(*reduction_, to, from, bytes_);
    else
      std::memcpy(to, from, bytes_);
    ++target_.block->progress;
    complete_transactions(*target_.block, target_.barrier, bytes_);
  }
  [[nodiscard]] bool reaches_peers() const override { return true; }

 private:
  const Block& from_;
  std::uint32_t offset_;
  std::uint32_t bytes_;
  BulkTarget target_;
  const Reduction* reduction_;
  Site issued_;
};

}  // namespace

/// Lands in two steps: a thread may wait for the first alone.
class BulkStore final : public AsyncOperation {
 public:
  BulkStore(Block& block, std::uint32_t warp, Swizzle swizzle, std::uint32_t offset,
            std::vector<Piece> pieces)
      : block_(block), warp_(warp), swizzle_(swizzle), offset_(offset), pieces_(std::move(pieces)) {}

  void read_source() {
    if (read_) return;
    read_ = true;
    std::uint32_t all = 0;
    for (const Piece& piece : pieces_) all += piece.bytes;
    source_.resize(all);
    std::byte* to = source_.data();
    for (const Piece& piece : pieces_) {
      each_part(swizzle_, offset_, piece.offset, piece.bytes,
                [&](std::uint32_t offset, std::uint32_t done, std::uint32_t bytes) {
                  std::memcpy(to + done, block_.shared + offset, bytes);
                });
      to += piece.bytes;
    }
  }
  void write(const Reduction* reduction) {
    read_source();
    const std::byte* from = source_.data();
    for (const Piece& piece : pieces_) {
      if (reduction != nullptr)
        combine_all(*reduction, piece.host, from, piece.bytes);
      else
        std::memcpy(piece.host, from, piece.bytes);
      from += piece.bytes;
    }
    ++block_.progress;
  }
  void land() override {
    write(nullptr);
    std::erase_if(block_.bulk_groups[warp_].pending,
                  [&](const WarpBulkGroups::Pending& pending) { return pending.store == this; });
  }

 private:
  Block& block_;
  std::uint32_t warp_;
  Swizzle swizzle_;
  std::uint32_t offset_;
  std::vector<Piece> pieces_;
  std::vector<std::byte> source_;
  bool read_ = false;
};

namespace {

/// Who has read the source, or written the destination, of a lane's bulk groups.
Agent group_agent(Block& block, AgentKind kind, const Warp& warp, int lane, std::uint32_t time) {
  const std::uint32_t thread = warp.index * kLanes + static_cast<std::uint32_t>(lane);
  return {.block = block.index, .slot = agent_slot(block, kind, thread), .time = time};
}

}  // namespace

BulkBox plain_box(std::uint64_t address, std::uint32_t bytes) {
  BulkBox box;
  box.bytes = bytes;
  if (bytes != 0) box.runs.push_back({address, 0, bytes});
  return box;
}

BulkBox tensor_box(const TensorMap& map, const TensorCoordinates& first) {
  return {.runs = runs_of_box(map, first),
          .bytes = box_bytes(map),
          .swizzle = map.swizzle,
          .element = map.element,
          .fill = fill_bits(map)};
}

void load_bulk(const BulkIssuer& issuer, BulkBox box, std::span<const BulkTarget> targets) {
  for (const BulkTarget& target : targets)
    if (box.bytes != 0)
      touch_shared(issue_of(issuer, agent_of(issuer, target)), *target.block, target.offset, box.bytes,
                   AccessKind::write);
  std::vector<Piece> pieces =
      find_pieces(issue_of(issuer, agent_of(issuer, targets.front())), box, AccessKind::read);
  count(issuer, box, box.bytes * static_cast<std::uint32_t>(targets.size()));
  send(issuer.warp,
       std::make_unique<BulkLoad>(std::move(box), std::move(pieces), targets,
                                  site_of(issuer.warp, issuer.instruction, issuer.lane), issuer.warp.block));
}

void store_bulk(const BulkIssuer& issuer, BulkBox box, std::uint32_t offset, const Reduction* reduction) {
  Block& block = *issuer.warp.block;
  WarpBulkGroups& groups = block.bulk_groups[issuer.warp.index];
  const std::uint32_t group = groups.committed[static_cast<std::size_t>(issuer.lane)];
  const auto agent = [&](AgentKind kind) {
    return group_agent(block, kind, issuer.warp, issuer.lane, group + 1);
  };
  const AsyncIssue reads = issue_of(issuer, agent(AgentKind::bulk_reads));
  for (const BoxRun& run : box.runs)
    each_range(box, offset, run, [&](std::uint32_t from, std::uint32_t bytes) {
      touch_shared(reads, block, from, bytes, AccessKind::read);
    });
  const AsyncIssue writes = issue_of(issuer, agent(AgentKind::bulk_writes));
  std::vector<Piece> pieces =
      find_pieces(writes, box, reduction != nullptr ? AccessKind::atomic : AccessKind::write);
  count(issuer, box, box.bytes);
  auto store = std::make_unique<BulkStore>(block, issuer.warp.index, box.swizzle, offset, std::move(pieces));
  if (reduction != nullptr) {
    store->write(reduction);
    memory_changed(issuer.warp);
    return;
  }
  groups.pending.push_back({.lane = issuer.lane, .group = group, .store = store.get()});
  send_from(issuer, std::move(store));
}

void send_bulk(const BulkIssuer& issuer, std::uint32_t offset, std::uint32_t bytes, const BulkTarget& target,
               const Reduction* reduction) {
  const AsyncIssue issue = issue_of(issuer, agent_of(issuer, target));
  Block& block = *issuer.warp.block;
  if (bytes != 0) {
    touch_shared(issue, block, offset, bytes, AccessKind::read);
    touch_shared(issue, *target.block, target.offset, bytes,
                 reduction != nullptr ? AccessKind::atomic : AccessKind::write);
  }
  count(issuer, {}, 2 * bytes);
  send_from(issuer, std::make_unique<BulkSend>(block, offset, bytes, target, reduction,
                                               site_of(issuer.warp, issuer.instruction, issuer.lane)));
}

void commit_bulk(Warp& warp, Mask mask) {
  for (; mask != 0; mask &= mask - 1)
    ++warp.block->bulk_groups[warp.index].committed[static_cast<std::size_t>(std::countr_zero(mask))];
}

void wait_bulk(Warp& warp, Mask mask, std::uint32_t pending, bool reads_only) {
  Block& block = *warp.block;
  WarpBulkGroups& groups = block.bulk_groups[warp.index];
  for (; mask != 0; mask &= mask - 1) {
    const int lane = std::countr_zero(mask);
    const std::uint32_t committed = groups.committed[static_cast<std::size_t>(lane)];
    if (committed <= pending) continue;
    const std::uint32_t complete = committed - pending;
    std::vector<BulkStore*> awaited;
    for (const WarpBulkGroups::Pending& one : groups.pending)
      if (one.lane == lane && one.group < complete) awaited.push_back(one.store);
    for (BulkStore* const store : awaited) {
      if (reads_only)
        store->read_source();
      else
        land_now(block, store);
    }
    const auto learn = [&](AgentKind kind) {
      learn_of(warp, Mask{1} << lane, group_agent(block, kind, warp, lane, complete));
    };
    learn(AgentKind::bulk_reads);
    if (!reads_only) learn(AgentKind::bulk_writes);
  }
}

}  // namespace sparsekiln::emulator
