#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <unordered_map>
#include <vector>

#include "emulator/machine/async_operation.h"
#include "emulator/machine/barrier_state.h"
#include "emulator/machine/bulk_groups.h"
#include "emulator/machine/cluster_state.h"
#include "emulator/machine/grid.h"
#include "emulator/machine/mbarrier_state.h"
#include "emulator/machine/order.h"
#include "emulator/machine/pending_copies.h"
#include "emulator/machine/random.h"
#include "emulator/machine/register_pool.h"
#include "emulator/machine/shadow.h"
#include "emulator/machine/warp_state.h"
#include "emulator/machine/wgmma_state.h"

namespace sparsekiln::emulator {

/// Zeroed bytes at a line of the host's cache.
class LineAlignedBytes {
 public:
  explicit LineAlignedBytes(std::size_t bytes);
  [[nodiscard]] std::byte* data() const { return bytes_.get(); }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte[], Free> bytes_;
};

/// The state of a warp, to check whether it returns to exactly this state: then, as nothing else has changed,
/// it never leaves the loop.
struct WarpSnapshot {
  std::vector<std::byte> registers;
  std::vector<Divergence> diverged;
  std::uint32_t pc = 0;
  Mask active = 0;
  std::uint64_t progress = 0;

  void take(const Warp& warp, std::size_t register_bytes, std::uint64_t now);
  [[nodiscard]] bool same(const Warp& warp, std::uint64_t now) const;
};

/// One block of threads: its warps, memory, barriers, and which of them runs next. It is reused for one block
/// of the grid after the other.
class Block {
 public:
  /// One of `with`, which holds its address already, with rank `at`.
  Block(Grid& of, Cluster& with, std::uint32_t at);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void start(std::uint32_t number);
  /// Runs until every warp has ended, or those that could run on want a turn. Throws Fault.
  void run(Worker& on);
  /// Lets a warp that wants a turn talk to other blocks. One at a time in the whole grid.
  /// Whether that warp is known to come back to the same state until something in the grid changes.
  bool take_turn(std::uint32_t warp, Worker& on);
  [[nodiscard]] bool ended() const { return living == 0; }
  /// Ended, with all that it sent on its way.
  [[nodiscard]] bool finished() const { return ended() && flying.empty(); }
  /// Whether what it sends on its way lands at once.
  [[nodiscard]] bool lands_early() const { return landing_ == Landing::early; }
  /// Lets an operation land now, if it has not.
  void land(const AsyncOperation* operation);
  /// Lets operations that reach other blocks of the cluster land: all, or those that the seed picks. Whether
  /// any did.
  bool land_at_peers(bool all);
  /// Nothing in the block can run on. Throws Fault.
  [[noreturn]] void report_stuck() const;
  [[nodiscard]] std::uint32_t wanting() const;  ///< warps, one bit each

  // ---- for the handlers' functions of warp.h ----
  Grid& grid;
  Worker* worker = nullptr;
  std::uint32_t index = 0;  ///< number in the grid
  Cluster* cluster = nullptr;
  std::uint32_t rank = 0;  ///< in the cluster
  std::vector<Warp> warps;
  std::byte* shared = nullptr;
  std::byte* local = nullptr;            ///< of all threads, Grid::local_bytes each
  std::vector<Line> shared_lines;        ///< empty where races are not watched
  std::vector<ByteMask> shared_written;  ///< by cell; empty where that is not watched
  std::vector<ByteMask> shared_filling;  ///< by asynchronous copies that are on their way
  std::vector<ByteMask> local_cells;     ///< which bytes were written
  std::uint32_t stamp = 0;               ///< of this block in shared_lines
  BlockOrder order;
  SyncPlaces shared_places;
  std::vector<std::uint32_t*> times;  ///< Warp::time of each
  Barriers barriers;
  Mbarriers mbarriers;
  std::vector<std::unique_ptr<AsyncOperation>> flying;      ///< sent and not landed
  std::unordered_map<std::uint64_t, std::uint32_t> agents;  ///< slots that are taken: see agent_slot
  std::vector<WarpCopies> copies;                           ///< by warp
  std::vector<WarpBulkGroups> bulk_groups;                  ///< by warp
  BlockMatrix matrix;
  RegisterPool pool;
  Random random;
  std::uint64_t progress = 0;       ///< goes up with each change that others may wait for
  std::uint32_t ready = 0;          ///< warps in WarpState::ready
  std::uint32_t living = 0;         ///< warps that have not ended
  std::vector<std::uint64_t> idle;  ///< by warp: instructions since `progress` last changed

  /// Lets the warps of `which`, which waited, run on.
  void wake(std::uint32_t which);

 private:
  /// When what is sent on its way lands.
  enum class Landing : std::uint8_t { early, any_time, late };

  /// How long a warp has run without an effect, and what it was like.
  struct Patience {
    std::uint64_t next_look = 0;  ///< of `idle`
    WarpSnapshot running;
    std::uint64_t turns = 0;  ///< since `progress` of the grid was
    std::uint64_t progress = 0;
    WarpSnapshot talking;
  };

  void run_warp(std::uint32_t warp, std::uint32_t budget);
  void note_ended(Warp& warp, Mask before);
  /// Runs a warp on, and sees whether it gets back to where it is now.
  [[nodiscard]] bool comes_back(std::uint32_t warp);
  /// Lets one of `flying` land that stays within the block, if the seed says so or it `must`. Whether one
  /// did.
  bool land_one(bool must);

  LineAlignedBytes registers_;
  LineAlignedBytes shared_;
  LineAlignedBytes local_;
  std::vector<Patience> patience_;
  Landing landing_ = Landing::early;
  std::uint32_t circling_ = 0;  ///< warps that only go in circles until something changes
};

/// Runs up to `budget` instructions of a warp, as long as it is ready (machine/warp.cpp).
void run_slice(Warp& warp, const Instruction* code, std::uint64_t* executed, std::uint32_t budget);
/// Fills the rows that have a value when a warp starts, for the `first` block that uses these registers or
/// another (machine/special.cpp).
void fill_fixed_rows(const Block& block, const Warp& warp, bool first);
/// Faults for a warp that cannot continue: a deadlock, or lanes that wait for lanes of their own warp. `why`
/// is empty for an endless loop.
[[noreturn]] void report_endless(const Warp& warp, const std::string& why);
/// Faults for barrier `id`, where some threads wait and others will never arrive.
[[noreturn]] void report_missing(const Block& block, std::uint32_t id);
/// A warp ended: barriers that waited for it alone are complete (machine/barrier.cpp).
void release_barriers(Block& block);
/// A warp ended: faults if others of its warpgroup have executed more wgmmas (machine/wgmma.cpp).
void end_matrix(const Warp& warp);
/// A warp ended: faults if others of its warpgroup have executed more setmaxnregs
/// (machine/set_registers.cpp).
void end_registers(const Warp& warp);
/// Faults where a warp waits for registers.
void report_registers(const Block& block);
/// Faults where a warp waits for wgmmas that another warp of its warpgroup never issues (machine/wgmma.cpp).
void report_matrix(const Block& block);
/// Lanes of a warp ended: their copies arrive.
void finish_copies(Warp& warp, Mask lanes);
/// Lanes of a warp ended: notes where one of them has not waited for earlier launches (machine/overlap.cpp).
void note_missing_wait(const Warp& warp, Mask ended);

}  // namespace sparsekiln::emulator
