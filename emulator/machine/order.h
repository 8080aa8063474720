#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/machine/touch.h"
#include "emulator/program/program.h"

namespace sparsekiln::emulator {

/// Happens-before (PTX ISA 8.9, "Memory Consistency Model: Axioms"; "causality order"), as far as barriers,
/// fences and synchronizing accesses make it.
///
/// Each warp has a time, which goes up by one where order is made: at barriers of the block, at barriers of
/// the warp, at fences and releases. A touch carries its warp's time. All warps of a block have the same time
/// after a barrier of the whole block: its epoch; whatever the block touched before has a smaller time and
/// comes before. What else comes before is in a Knowledge.
///
/// Where the ISA's rules are finer than what is kept here, order is assumed: no report is made that is not a
/// race. So
/// - a fence before a barrier also serves the threads that synchronize after it, and one after a barrier the
///   reads of threads before it;
/// - of strong accesses to one place the last stands for all, and a strong read for the write that it saw;
/// - of unordered reads, two are remembered;
/// - what several lanes of a warp read of 128 bytes, by accesses of 16, is not told apart by lane;
/// - the scope of a cluster counts as that of the device;
/// - a proxy fence that lanes of a warp execute together serves each of them for what all of them did;
/// - a block has 223 agents of the async proxy, and further ones share their places.

/// What comes before: touches by whom, up to which time. Immutable and shared.
class Knowledge;
using KnowledgePtr = std::shared_ptr<const Knowledge>;

class Knowledge {
 public:
  static constexpr std::uint32_t kAll = 0xff;  ///< every warp, or every lane

  /// Touches of `lane` of `warp` of `block` up to and with `time` come before. kAll lanes of a warp; kAll
  /// warps.
  void learn(std::uint32_t block, std::uint32_t warp, std::uint32_t lane, std::uint32_t time);
  [[nodiscard]] bool has(std::uint32_t block, std::uint32_t warp, std::uint32_t lane,
                         std::uint32_t time) const;
  /// For some lane of a warp.
  [[nodiscard]] bool has_some(std::uint32_t block, std::uint32_t warp, std::uint32_t time) const;
  [[nodiscard]] static KnowledgePtr join(const KnowledgePtr& a, const KnowledgePtr& b);

 private:
  using Entry = std::pair<std::uint64_t, std::uint32_t>;  ///< key and time, ascending
  [[nodiscard]] bool has(std::uint64_t key, std::uint32_t time) const;
  [[nodiscard]] bool contains(const Knowledge& other) const;

  std::vector<Entry> entries_;
};

/// What comes before, by proxies (PTX ISA 8.6, 8.9.4): a write through the generic proxy comes before
/// accesses of the async proxy only where a proxy fence is between them.
struct Known {
  KnowledgePtr plain;    ///< for accesses through the generic proxy, and of the async proxy to its own
  KnowledgePtr proxied;  ///< that a proxy fence followed

  void join(const Known& other) {
    plain = Knowledge::join(plain, other.plain);
    proxied = Knowledge::join(proxied, other.proxied);
  }
  [[nodiscard]] bool empty() const { return plain == nullptr && proxied == nullptr; }
};

/// A place in memory that threads synchronize through: what is known to those who read what is there.
struct SyncPlace {
  Known device;                                     ///< released for all
  std::unordered_map<std::uint32_t, Known> blocks;  ///< by block: released by it, for its own threads
  std::uint64_t writer = ~std::uint64_t{0};         ///< thread that wrote last
};
/// By address.
class SyncPlaces {
 public:
  /// Null where nothing was released.
  [[nodiscard]] SyncPlace* find(std::uint64_t address) {
    if (address < least_ || address > greatest_) return nullptr;
    const auto found = places_.find(address);
    return found == places_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] SyncPlace& at(std::uint64_t address) {
    least_ = std::min(least_, address);
    greatest_ = std::max(greatest_, address);
    return places_[address];
  }
  void clear() { *this = {}; }

 private:
  std::unordered_map<std::uint64_t, SyncPlace> places_;
  std::uint64_t least_ = ~std::uint64_t{0};
  std::uint64_t greatest_ = 0;
};

/// What a thread knows in addition to what its block does. `[0]`: for its block, `[1]`: for the device.
struct ThreadOrder {
  Known known;                  ///< acquired since the last barrier
  std::array<Known, 2> fenced;  ///< what the last fence put before later strong writes
  std::array<Known, 2> read;    ///< what strong reads saw: known after the next fence

  void join(const ThreadOrder& other);
  [[nodiscard]] bool empty() const;
};

/// The order of one block's accesses.
class BlockOrder {
 public:
  /// For a block of `warps` that starts: everything is forgotten. `times` stay the warps' own (Warp::time).
  void start(std::uint32_t block, std::uint32_t warps);

  [[nodiscard]] Viewer viewer(std::uint32_t warp) const {
    return {.block = block_,
            .warp = warp,
            .epoch = epoch_,
            .synced = warps_[warp].synced,
            .context = &warps_[warp],
            .slow = ordered_by_knowledge};
  }

  /// A barrier of the whole block: all times become equal.
  void synchronize_block(std::uint32_t* const* times);
  /// A barrier of some warps: those of `waiting` come after what those of `waiting` and `arrived` did up to
  /// the times at which they came.
  void synchronize_warps(std::uint32_t waiting, std::uint32_t arrived, const std::uint32_t* came,
                         std::uint32_t* const* times);
  /// bar.warp.sync of `members`, which are all living lanes or not.
  void synchronize_lanes(std::uint32_t warp, Mask members, bool all, std::uint32_t& time);

  void fence(std::uint32_t warp, Mask lanes, bool device, std::uint32_t& time);
  /// fence.proxy.async: what comes before in these lanes comes before the async proxy as well.
  void fence_proxy(std::uint32_t warp, Mask lanes, std::uint32_t& time);
  /// What comes before what the lanes do next, for who waits for all of them; and the other way round.
  [[nodiscard]] Known release(std::uint32_t warp, Mask lanes, std::uint32_t& time);
  void acquire(std::uint32_t warp, Mask lanes, const Known& known);
  /// What the last fences of the lanes put before what they do next, for who waits for a relaxed arrival.
  [[nodiscard]] Known fenced(std::uint32_t warp, Mask lanes) const;

  /// What comes before an operation of the async proxy that a lane issues. It is valid as long as `point`.
  struct AsyncPoint {
    const BlockOrder* order = nullptr;
    std::uint32_t warp = 0;
    int lane = 0;

    /// Those who touched memory, as lanes of a warp or as an agent, and are known to come before: what is
    /// known does not change while an operation is issued.
    struct Earlier {
      std::uint32_t block = 0;
      std::uint32_t warp = 0;
      std::uint32_t time = 0;
      Mask lanes = 0;
    };
    mutable std::array<Earlier, 8> earlier = {};
    mutable std::size_t next = 0;  ///< of `earlier` to be replaced

    [[nodiscard]] Earlier& earlier_of(const Touch& touch) const;
  };
  [[nodiscard]] static Viewer async_viewer(const AsyncPoint& point) {
    return {.block = kNobody, .context = &point, .slow = ordered_for_async};
  }

  /// A strong read by a lane of what was released at `place`.
  void read(std::uint32_t warp, int lane, const SyncPlace& place, bool acquires, bool device);
  /// A strong write, which took the place of what was there unless it was part of a read-modify-write.
  void write(std::uint32_t warp, int lane, SyncPlaces& places, std::uint64_t address, bool modifies,
             bool releases, bool device, std::uint32_t& time);

 private:
  static constexpr std::uint32_t kNobody = 0xffffffffu;

  struct LaneTimes {
    std::uint32_t known[kLanes][kLanes] = {};  ///< [who][whom]: up to which time
  };
  struct WarpOrder {
    const BlockOrder* owner = nullptr;
    std::uint32_t index = 0;
    std::uint32_t synced = 0;
    std::vector<std::uint32_t> known;  ///< by warp, up to and with: by barriers of some warps; empty: nothing
    std::unique_ptr<LaneTimes> lanes;  ///< by bar.warp.sync of some lanes
    std::unique_ptr<std::array<ThreadOrder, kLanes>> threads;
  };

  static bool ordered_by_knowledge(const void* context, const Touch& before, const Touch& now, unsigned parts,
                                   int bytes_of_part);
  [[nodiscard]] bool knows(const WarpOrder& warp, int lane, const Touch& before, int before_lane) const;
  static bool ordered_for_async(const void* context, const Touch& before, const Touch& now, unsigned parts,
                                int bytes_of_part);
  /// Adds what the numbers of a warp say that its lanes come after.
  void add_numbers(const WarpOrder& warp, Knowledge& to) const;
  /// What comes before what the thread does next, for others: its own accesses up to `time`, and what it
  /// knows.
  [[nodiscard]] Known released_by(const WarpOrder& warp, int lane, std::uint32_t time) const;
  [[nodiscard]] ThreadOrder& thread(std::uint32_t warp, int lane);
  /// Lets the threads of some warps (all lanes) know what each of them does.
  void share(std::uint32_t from, std::uint32_t to);

  std::uint32_t block_ = 0;
  std::uint32_t epoch_ = 0;
  std::vector<WarpOrder> warps_;
  ThreadOrder common_;  ///< what all threads of the block have known since a barrier of the whole block
};

}  // namespace sparsekiln::emulator
