#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "emulator/machine/memory_access.h"
#include "emulator/program/program.h"

namespace sparsekiln::emulator {

/// The `warp` of a touch from this on is an agent of the async proxy (machine/async_proxy.h).
inline constexpr std::uint32_t kFirstAgent = 32;
inline constexpr std::uint32_t kLastAgent = 254;

/// How far an access is strong (PTX ISA 8.4, "Strong Operations"; 8.5, "Scope"): not at all, for its block,
/// or for all. The scope of a cluster counts as the device.
enum class Strength : std::uint8_t { weak, block, device };
[[nodiscard]] inline bool reaches_device(Scope scope) { return scope != Scope::block; }
[[nodiscard]] inline Strength strength_of(const Access& access) {
  if (!access.strong) return Strength::weak;
  return reaches_device(access.scope) ? Strength::device : Strength::block;
}

/// Which lane touched which byte of a range of memory: byte b was touched by lane (first + (b >> step ^
/// turn)) mod 32. Neighboring lanes next to each other have turn 0; rows whose 16-byte units are swizzled
/// have another one.
struct LanePattern {
  std::uint8_t first_and_step = 0;
  std::uint8_t turn = 0;

  static constexpr int kOneLane = 7;  ///< step: all bytes
  static LanePattern of(int first, int step, int turn = 0) {
    return {.first_and_step = static_cast<std::uint8_t>((first & 31) | step << 5),
            .turn = static_cast<std::uint8_t>(turn)};
  }
  [[nodiscard]] int step() const { return first_and_step >> 5; }
  [[nodiscard]] int lane_at(int byte) const { return ((first_and_step & 31) + (byte >> step() ^ turn)) & 31; }
  /// The pattern of a stretch of 16 bytes that begins at `byte` of this one.
  [[nodiscard]] LanePattern within(int byte) const {
    return step() >= 4 ? of(lane_at(byte), kOneLane) : of(lane_at(byte), step());
  }
};

/// One access as a shadow remembers it: lanes of a warp that touched parts of a stretch of memory.
struct Touch {
  std::uint32_t block = 0;  ///< number in the grid
  std::uint32_t time = 0;   ///< of the warp; see order.h
  std::uint32_t pc_and_warp = 0;
  std::uint16_t parts = 0;  ///< one bit each, of as many bytes as the stretch is counted in; 0: no touch
  std::uint8_t lanes = 0;   ///< LanePattern::first_and_step
  std::uint8_t flags = 0;

  enum Flag : std::uint8_t { kWrites = 1, kStrength = 6, kSeveral = 8, kTurn = 0x70, kMixed = 0x80 };

  static Touch of(std::uint32_t block, std::uint32_t warp, std::uint32_t time, std::uint32_t pc, bool writes,
                  Strength strength) {
    return {.block = block,
            .time = time,
            .pc_and_warp = pc << 8 | warp,
            .flags = static_cast<std::uint8_t>((writes ? kWrites : 0) | static_cast<int>(strength) << 1)};
  }
  void place(unsigned mask, LanePattern pattern) {
    parts = static_cast<std::uint16_t>(mask);
    lanes = pattern.first_and_step;
    flags = static_cast<std::uint8_t>((flags & (kWrites | kStrength)) | pattern.turn << 4);
  }
  [[nodiscard]] std::uint32_t warp() const { return pc_and_warp & 0xff; }
  [[nodiscard]] std::uint32_t pc() const { return pc_and_warp >> 8; }
  [[nodiscard]] bool writes() const { return (flags & kWrites) != 0; }
  [[nodiscard]] bool by_agent() const { return warp() >= kFirstAgent; }
  [[nodiscard]] Strength strength() const { return static_cast<Strength>((flags & kStrength) >> 1); }
  [[nodiscard]] LanePattern pattern() const {
    return {.first_and_step = lanes, .turn = static_cast<std::uint8_t>((flags & kTurn) >> 4)};
  }
  /// Several lanes of the warp have read each of these parts; the pattern names the last.
  [[nodiscard]] bool several() const { return (flags & kSeveral) != 0; }
  /// Which lane of the warp has touched it is not known; the pattern is that of the last one.
  [[nodiscard]] bool mixed() const { return (flags & kMixed) != 0; }
  [[nodiscard]] int lane_at(int byte) const { return pattern().lane_at(byte); }

  [[nodiscard]] bool same_step(const Touch& other) const {
    return time == other.time && block == other.block && warp() == other.warp() &&
           ((flags ^ other.flags) & (kWrites | kStrength)) == 0;
  }
  [[nodiscard]] bool same_pattern(const Touch& other) const {
    return lanes == other.lanes && ((flags ^ other.flags) & kTurn) == 0;
  }
  /// Whether this, a read, says all that `now`, a later read, would: no write can have come between, since it
  /// would have replaced this.
  [[nodiscard]] bool repeats(const Touch& now) const {
    return (parts & now.parts) == now.parts && same_step(now) && (several() || mixed() || same_pattern(now));
  }
};
static_assert(sizeof(Touch) == 16);

/// Calls holds(byte) for bytes of the parts, of `bytes_of_part` each, so that no lane of either touch is left
/// out; whether all hold.
template <class Holds>
[[nodiscard]] bool each_byte(const Touch& a, const Touch& b, unsigned parts, int bytes_of_part, Holds holds) {
  const int stride = std::min({1 << a.pattern().step(), 1 << b.pattern().step(), bytes_of_part});
  for (; parts != 0; parts &= parts - 1) {
    const int begin = std::countr_zero(parts) * bytes_of_part;
    for (int byte = begin; byte < begin + bytes_of_part; byte += stride)
      if (!holds(byte)) return false;
  }
  return true;
}

/// Whether all parts were touched by the same lane both times, of the same warp.
[[nodiscard]] inline bool same_lanes(const Touch& a, const Touch& b, unsigned parts, int bytes_of_part) {
  return a.same_pattern(b) ||
         each_byte(a, b, parts, bytes_of_part, [&](int byte) { return a.lane_at(byte) == b.lane_at(byte); });
}

/// Whether the two are strong for each other: then they are no race (PTX ISA 8.7, "Morally Strong
/// Operations").
[[nodiscard]] inline bool morally_strong(const Touch& a, const Touch& b) {
  if (a.strength() == Strength::weak || b.strength() == Strength::weak) return false;
  return a.block == b.block || (a.strength() == Strength::device && b.strength() == Strength::device);
}

/// Says which accesses come before those that a warp makes now. `slow` decides what the numbers do not.
struct Viewer {
  std::uint32_t block = 0;
  std::uint32_t warp = 0;
  std::uint32_t epoch = 0;   ///< what the block did before this time comes before
  std::uint32_t synced = 0;  ///< what the warp did before this time comes before
  const void* context = nullptr;
  bool (*slow)(const void* context, const Touch& before, const Touch& now, unsigned parts,
               int bytes_of_part) = nullptr;

  /// Whether the numbers alone say that `before` comes before.
  [[nodiscard]] bool plainly_ordered(const Touch& before, const Touch& now, unsigned parts,
                                     int bytes_of_part) const {
    if (before.block != block || before.by_agent()) return false;
    if (before.time < epoch) return true;
    if (before.warp() != warp) return false;
    return before.time < synced || before.mixed() ||
           (!before.several() && same_lanes(before, now, parts, bytes_of_part));
  }
  [[nodiscard]] bool ordered(const Touch& before, const Touch& now, unsigned parts, int bytes_of_part) const {
    return plainly_ordered(before, now, parts, bytes_of_part) ||
           slow(context, before, now, parts, bytes_of_part);
  }
};

enum class Added : std::uint8_t { yes, race, no_room };

/// The remembered touches of a stretch of memory, in parts of kPartBytes.
template <int kMost, int kPartBytes>
class Touches {
 public:
  /// A stretch is counted in parts of 16 bytes: reads of a warp at one time then become one touch.
  static constexpr bool kJoinsReads = kPartBytes > 1;

  void clear() { used_ = 0; }
  [[nodiscard]] std::span<const Touch> all() const { return {touches_.data(), used_}; }

  /// Records an access. What comes before it in order and can race with nothing that `now` does not race with
  /// is dropped; of reads that no order relates two are kept, of two warps. Where `now` races with a touch,
  /// that goes to `other`.
  [[nodiscard]] Added add(Touch now, const Viewer& viewer, Touch& other) {
    if (!now.writes() && !now.by_agent())  // of an agent, others may have issued the earlier one
      for (const Touch& touch : all())
        if (touch.repeats(now)) return Added::yes;
    int readers = 0;
    for (Touch& touch : std::span<Touch>(touches_.data(), used_))
      if ((touch.parts & now.parts) != 0 && !meet(touch, now, viewer, other, readers)) return Added::race;
    if (readers >= 2) return Added::yes;
    return keep(now) ? Added::yes : Added::no_room;
  }
  /// Keeps what has met all others.
  [[nodiscard]] bool keep(const Touch& now) {
    Touch* free = nullptr;
    for (Touch& touch : std::span<Touch>(touches_.data(), used_)) {
      if (touch.parts == 0) {
        if (free == nullptr) free = &touch;
      } else if (kJoinsReads && touch.same_step(now) && (!now.writes() || touch.same_pattern(now))) {
        if (!touch.same_pattern(now)) touch.flags |= Touch::kMixed;
        touch.parts |= now.parts;
        touch.pc_and_warp = now.pc_and_warp;
        return true;
      }
    }
    if (free == nullptr) {
      if (used_ == kMost) return false;
      free = &touches_[used_++];
    }
    *free = now;
    return true;
  }

  /// What becomes of an earlier touch that shares parts with `now`; false: they race. `readers` counts reads
  /// of all of its parts by other warps that no order relates to `now`, a read.
  static bool meet(Touch& touch, Touch& now, const Viewer& viewer, Touch& other, int& readers) {
    const auto common = static_cast<std::uint16_t>(touch.parts & now.parts);
    const auto forget = [&] { touch.parts = static_cast<std::uint16_t>(touch.parts & ~common); };
    if (!touch.writes() && !now.writes()) {
      if (viewer.plainly_ordered(touch, now, common, kPartBytes)) {
        if (!touch.mixed() || !touch.same_step(now)) forget();
      } else if (touch.block == now.block && touch.warp() == now.warp()) {
        now.flags |= kJoinsReads ? Touch::kMixed : Touch::kSeveral;
        forget();
      } else if (common == now.parts) {
        ++readers;
      }
      return true;
    }
    if (viewer.ordered(touch, now, common, kPartBytes)) {
      if (now.writes()) forget();
      return true;
    }
    if (morally_strong(touch, now)) {
      // The last of a chain of strong accesses represents all of them. A strong read replaces the write that
      // it read: whether it synchronized is not known yet, and no order must be missed.
      if (now.writes() || touch.writes()) forget();
      return true;
    }
    other = touch;
    other.parts = common;
    return false;
  }

 private:
  std::array<Touch, kMost> touches_;  ///< from `used_` on there are none; before, some may be empty
  std::uint32_t used_ = 0;
};

}  // namespace sparsekiln::emulator
