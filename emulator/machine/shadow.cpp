#include "emulator/machine/shadow.h"

#include <algorithm>
#include <bit>

namespace sparsekiln::emulator {
namespace {

/// How many touches one cell remembers in addition to those in its first line: enough for 16 bytes of which
/// each has one writer and two readers. It is a bound, beyond which a report may be missed.
constexpr std::size_t kMostTouches = 48;

}  // namespace

bool Cell::add(Touch now, const Viewer& viewer, Touch& other) {
  if (more_ != nullptr) {
    int readers = 0;
    for (Touch& touch : *more_)
      if ((touch.parts & now.parts) != 0 && !Own::meet(touch, now, viewer, other, readers)) return false;
    std::erase_if(*more_, [](const Touch& touch) { return touch.parts == 0; });
    if (more_->empty()) more_.reset();
    if (readers >= 2) return true;
  }
  const Added added = touches_.add(now, viewer, other);
  if (added == Added::no_room) keep(now);
  return added != Added::race;
}

void Cell::keep(const Touch& touch) {
  if (touches_.keep(touch)) return;
  if (more_ == nullptr) more_ = std::make_unique<std::vector<Touch>>();
  if (more_->size() >= kMostTouches) more_->erase(more_->begin());
  more_->push_back(touch);
}

bool Line::add(const LaneGroup& group, Touch now, std::uint32_t stamp, const Viewer& viewer,
               Conflict& conflict) {
  if (stamp_ != stamp) {
    stamp_ = stamp;
    split_ = false;
    touches_.clear();
  }
  if (group.units != 0 && !split_) {
    now.place(group.units, group.pattern);
    const Added added = touches_.add(now, viewer, conflict.touch);
    if (added == Added::yes) return true;
    if (added == Added::race) {
      const int byte = std::countr_zero(static_cast<unsigned>(conflict.touch.parts)) * int{kCellBytes};
      conflict.byte = static_cast<std::uint32_t>(byte);
      conflict.lane = conflict.touch.lane_at(byte);
      return false;
    }
  }
  if (!split_) split();
  return add_to_cells(group, now, viewer, conflict);
}

bool Line::add_to_cells(const LaneGroup& group, Touch now, const Viewer& viewer, Conflict& conflict) {
  bool clean = true;
  group.each_cell([&](std::uint32_t c, ByteMask bytes) {
    if (!clean) return;
    now.place(bytes, group.pattern.within(static_cast<int>(c * kCellBytes)));
    if ((*cells_)[c].add(now, viewer, conflict.touch)) return;
    const int byte = std::countr_zero(static_cast<unsigned>(conflict.touch.parts));
    conflict.byte = c * kCellBytes + static_cast<std::uint32_t>(byte);
    conflict.lane = conflict.touch.lane_at(byte);
    clean = false;
  });
  return clean;
}

void Line::split() {
  split_ = true;
  if (cells_ == nullptr) cells_ = std::make_unique<std::array<Cell, kCellsOfLine>>();
  for (Cell& cell : *cells_) cell.clear();
  for (const Touch& touch : touches_.all())
    for (unsigned left = touch.parts; left != 0; left &= left - 1) {
      const int cell = std::countr_zero(left);
      Touch part = touch;
      part.place(0xffff, touch.pattern().within(cell * static_cast<int>(kCellBytes)));
      if (touch.mixed()) part.flags |= Touch::kMixed;
      (*cells_)[static_cast<std::size_t>(cell)].keep(part);
    }
}

Shadow::Shadow(std::uint64_t bytes)
    : bytes_(bytes),
      written_(std::make_unique<ByteMask[]>(cells_of(bytes))),
      locks_(std::make_unique<std::atomic_flag[]>((bytes + kPageBytes - 1) / kPageBytes)),
      pages_((bytes + kPageBytes - 1) / kPageBytes) {}

Shadow::~Shadow() = default;

void Shadow::mark_written(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == bytes_) return mark_all_written();
  const std::uint64_t end = offset + bytes;
  while (offset < end) {
    const std::uint64_t cell = offset / kCellBytes;
    if (offset % kCellBytes == 0 && end - offset >= kCellBytes) {
      const std::uint64_t whole = (end - offset) / kCellBytes;
      std::fill_n(written_.get() + cell, whole, ByteMask{0xffff});
      offset += whole * kCellBytes;
    } else {
      const std::uint64_t stop = std::min(end, (cell + 1) * kCellBytes);
      for (; offset < stop; ++offset)
        written_[cell] = static_cast<ByteMask>(written_[cell] | 1u << offset % kCellBytes);
    }
  }
}

void Shadow::copy_written(std::uint64_t offset, const Shadow* other, std::uint64_t other_offset,
                          std::uint64_t bytes) {
  if (other == nullptr || other->all_written()) return mark_written(offset, bytes);
  const auto bit = [](std::uint64_t byte) { return static_cast<ByteMask>(1u << byte % kCellBytes); };
  std::vector<char> written(bytes);  // first: the ranges may overlap
  for (std::uint64_t i = 0; i < bytes; ++i) {
    const std::uint64_t byte = other_offset + i;
    written[i] = (other->written_[byte / kCellBytes] & bit(byte)) != 0 ? 1 : 0;
  }
  if (all_written()) {
    std::fill_n(written_.get(), cells_of(bytes_), ByteMask{0xffff});
    all_written_.store(false, std::memory_order_relaxed);
  }
  for (std::uint64_t i = 0; i < bytes; ++i) {
    ByteMask& cell = written_[(offset + i) / kCellBytes];
    cell = static_cast<ByteMask>(written[i] != 0 ? cell | bit(offset + i) : cell & ~bit(offset + i));
  }
}

Shadow::Locked::Locked(Shadow& shadow, std::uint64_t page) : lock_(&shadow.locks_[page]) {
  while (lock_->test_and_set(std::memory_order_acquire))
    while (lock_->test(std::memory_order_relaxed)) {
    }
}

Shadow::Page& Shadow::page(std::uint64_t index) {
  std::unique_ptr<Page>& page = pages_[index];
  if (page == nullptr) page = std::make_unique<Page>();
  return *page;
}

}  // namespace sparsekiln::emulator
