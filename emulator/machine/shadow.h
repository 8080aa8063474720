#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "emulator/machine/touch.h"

namespace sparsekiln::emulator {

/// Bytes that one cell of a shadow watches. No access of a lane is wider, or unaligned: none meets two cells.
inline constexpr std::uint32_t kCellBytes = 16;
inline constexpr std::uint32_t kLineBytes = 128;
inline constexpr std::uint32_t kCellsOfLine = kLineBytes / kCellBytes;
/// One bit a byte of a cell.
using ByteMask = std::uint16_t;

/// How many cells the masks of a memory have, so that those of a line can be looked at together.
[[nodiscard]] constexpr std::uint64_t cells_of(std::uint64_t bytes) {
  return (bytes + kLineBytes - 1) / kLineBytes * kCellsOfLine;
}
/// Whether the masks of a line's cells are all `same`.
[[nodiscard]] inline bool all_cells_are(const ByteMask* cells, ByteMask same) {
  std::uint64_t halves[2];
  std::memcpy(halves, cells, sizeof halves);
  const std::uint64_t wanted = same * 0x0001'0001'0001'0001u;
  return halves[0] == wanted && halves[1] == wanted;
}

/// Neighboring lanes of one request whose bytes are in one line.
struct LaneGroup {
  std::uint64_t line = 0;  ///< number, from the start of the memory
  Mask lanes = 0;
  std::uint32_t begin = 0;  ///< without `units`: bytes [begin, end) of the line
  std::uint32_t end = 0;
  std::uint32_t units = 0;  ///< 16-byte units that are touched in full, one bit each; 0: some are in part
  LanePattern pattern;      ///< of the line's bytes

  /// Calls use(cell, bytes) for each cell of the line that the group touches.
  template <class Use>
  void each_cell(Use use) const;
};

/// The group of the lowest lane of `mask`. `offsets` are into the memory of the lines; an access has `bytes`.
template <class Offset>
[[nodiscard]] LaneGroup first_group(Mask mask, int bytes, Offset offset);

/// Who touched 16 bytes, byte by byte.
class Cell {
 public:
  void clear() {
    touches_.clear();
    more_.reset();
  }
  /// False where `now` races with `other`.
  [[nodiscard]] bool add(Touch now, const Viewer& viewer, Touch& other);
  void keep(const Touch& touch);

 private:
  using Own = Touches<3, 1>;
  Own touches_;
  std::unique_ptr<std::vector<Touch>> more_;
};

/// What an access races with.
struct Conflict {
  Touch touch;
  std::uint32_t byte = 0;  ///< of the line
  int lane = 0;            ///< who touched that byte
};

/// Who touched 128 bytes. Lines are watched in units of 16 bytes for as long as accesses touch whole units,
/// by cells from the first one that does not. Two lines of the host's cache, of which the second is rarely
/// needed.
class alignas(64) Line {
 public:
  /// Records what a group of lanes does; `stamp` is that of the block or the launch: what others left is
  /// void. False where it races.
  [[nodiscard]] bool add(const LaneGroup& group, Touch now, std::uint32_t stamp, const Viewer& viewer,
                         Conflict& conflict);

 private:
  [[nodiscard]] bool add_to_cells(const LaneGroup& group, Touch now, const Viewer& viewer,
                                  Conflict& conflict);
  void split();

  std::uint32_t stamp_ = 0;
  bool split_ = false;
  std::unique_ptr<std::array<Cell, kCellsOfLine>> cells_;
  Touches<6, kCellBytes> touches_;
};
static_assert(sizeof(Line) == kLineBytes);

/// The shadow of an allocation: which bytes were written, and in pages, made where they are needed, who
/// touched them. Pages are locked for the time of a few lines: blocks run on several host threads.
class Shadow {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;
  static constexpr std::uint64_t kLinesOfPage = kPageBytes / kLineBytes;
  struct Page {
    std::array<Line, kLinesOfPage> lines;
  };

  explicit Shadow(std::uint64_t bytes);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  /// Bytes of a range now count as written.
  void mark_written(std::uint64_t offset, std::uint64_t bytes);
  /// Bytes [offset, offset + bytes) become as written or unwritten as those of another shadow, or of this
  /// one, from `other_offset` on; null is one whose bytes are all written. Not while a kernel runs.
  void copy_written(std::uint64_t offset, const Shadow* other, std::uint64_t other_offset,
                    std::uint64_t bytes);
  /// All bytes count as written from now on, or until copy_written says otherwise.
  void mark_all_written() { all_written_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool all_written() const { return all_written_.load(std::memory_order_relaxed); }

  /// Holds the lock of one page.
  class Locked {
   public:
    Locked(Shadow& shadow, std::uint64_t page);
    ~Locked() { lock_->clear(std::memory_order_release); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

   private:
    std::atomic_flag* lock_;
  };
  // For who holds the page's lock:
  [[nodiscard]] Page& page(std::uint64_t index);
  [[nodiscard]] ByteMask* written() { return written_.get(); }  ///< by cell

 private:
  std::uint64_t bytes_;
  std::unique_ptr<ByteMask[]> written_;  ///< by cell
  std::unique_ptr<std::atomic_flag[]> locks_;
  std::vector<std::unique_ptr<Page>> pages_;
  std::atomic<bool> all_written_{false};
};

template <class Use>
void LaneGroup::each_cell(Use use) const {
  if (units != 0) {
    for (std::uint32_t left = units; left != 0; left &= left - 1)
      use(static_cast<std::uint32_t>(std::countr_zero(left)), ByteMask{0xffff});
    return;
  }
  for (std::uint32_t cell = begin / kCellBytes; cell * kCellBytes < end; ++cell) {
    const std::uint32_t from = std::max(begin, cell * kCellBytes);
    const std::uint32_t to = std::min(end, (cell + 1) * kCellBytes);
    use(cell, static_cast<ByteMask>(((1u << (to - from)) - 1) << from % kCellBytes));
  }
}

template <class Offset>
LaneGroup first_group(Mask mask, int bytes, Offset offset) {
  const int first = std::countr_zero(mask);
  const std::uint64_t begin = offset(first);
  LaneGroup group;
  group.line = begin / kLineBytes;
  group.begin = static_cast<std::uint32_t>(begin % kLineBytes);
  int lane = first + 1;
  if (bytes == static_cast<int>(kCellBytes)) {
    const std::uint32_t unit = group.begin / kCellBytes;
    const auto turn = static_cast<std::uint32_t>(first & 7) ^ unit;
    group.units = 1u << unit;
    group.end = group.begin + kCellBytes;
    for (; (lane & 7) != 0 && (mask >> lane & 1) != 0; ++lane) {
      const std::uint64_t at = offset(lane);
      const auto next = static_cast<std::uint32_t>(at % kLineBytes / kCellBytes);
      if (at / kLineBytes != group.line || (static_cast<std::uint32_t>(lane & 7) ^ next) != turn) break;
      group.units |= 1u << next;
    }
    group.pattern = lane == first + 1 ? LanePattern::of(first, LanePattern::kOneLane)
                                      : LanePattern::of(first & ~7, 4, static_cast<int>(turn));
  } else {
    const int step = std::countr_zero(static_cast<unsigned>(bytes));
    std::uint32_t end = group.begin + static_cast<std::uint32_t>(bytes);
    for (; lane < kLanes && end < kLineBytes && (mask >> lane & 1) != 0; ++lane) {
      if (offset(lane) != group.line * kLineBytes + end) break;
      end += static_cast<std::uint32_t>(bytes);
    }
    group.end = end;
    if (group.begin % kCellBytes == 0 && end % kCellBytes == 0)
      group.units = ((1u << (end - group.begin) / kCellBytes) - 1) << group.begin / kCellBytes;
    group.pattern = LanePattern::of(first - static_cast<int>(group.begin >> step), step);
  }
  group.lanes = (lane == kLanes ? kAllLanes : (1u << lane) - 1) & ~((1u << first) - 1);
  return group;
}

}  // namespace sparsekiln::emulator
