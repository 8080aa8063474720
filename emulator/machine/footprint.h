#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/machine/shadow.h"

namespace sparsekiln::emulator {

struct Allocation;

/// The bytes of one allocation that a launch reads and writes. Pages are made where it accesses them.
class AllocationFootprint {
 public:
  /// The bytes of one page of the allocation's shadow, by cell.
  struct Page {
    std::array<ByteMask, Shadow::kLinesOfPage * kCellsOfLine> read{};
    std::array<ByteMask, Shadow::kLinesOfPage * kCellsOfLine> written{};
  };

  explicit AllocationFootprint(std::uint64_t bytes)
      : count_((bytes + Shadow::kPageBytes - 1) / Shadow::kPageBytes) {}
  /// For a caller that holds the lock of the group's page.
  void add(const LaneGroup& group, bool reads, bool writes);
  /// Null where nothing of the page was accessed. Not while the launch runs.
  [[nodiscard]] const Page* page(std::uint64_t index) const {
    return index < pages_.size() ? pages_[index].get() : nullptr;
  }

 private:
  std::uint64_t count_;
  std::once_flag sized_;
  std::vector<std::unique_ptr<Page>> pages_;
};

/// What launches that overlap a launch must know of it: which bytes of global memory it reads and writes, and
/// whether it waited for the launches before it.
class Footprint {
 public:
  explicit Footprint(std::string kernel) : kernel_(std::move(kernel)) {}
  Footprint(const Footprint&) = delete;
  Footprint& operator=(const Footprint&) = delete;

  /// The footprint of an allocation, made if it is not there.
  [[nodiscard]] AllocationFootprint& add(const Allocation& allocation);
  /// Null where there is none. No two allocations of a context ever have the same address.
  [[nodiscard]] const AllocationFootprint* find(std::uint64_t address) const;

  [[nodiscard]] const std::string& kernel() const { return kernel_; }

  /// A thread ended that never executed griddepcontrol.wait.
  void note_end_without_wait() { ends_without_wait_.store(true, std::memory_order_relaxed); }
  /// A thread executed griddepcontrol.launch_dependents before griddepcontrol.wait.
  void note_early_trigger() { triggers_early_.store(true, std::memory_order_relaxed); }
  /// Whether launches that this one overlaps may not have ended when this one has.
  [[nodiscard]] bool may_end_early() const { return ends_without_wait_.load(std::memory_order_relaxed); }
  /// Whether launches that this one overlaps may not have ended when its dependents begin. The end of a
  /// block lets them begin, too.
  [[nodiscard]] bool may_trigger_early() const {
    return may_end_early() || triggers_early_.load(std::memory_order_relaxed);
  }

 private:
  std::string kernel_;
  std::map<std::uint64_t, AllocationFootprint> parts_;  ///< by the allocation's address
  std::atomic<bool> ends_without_wait_{false};
  std::atomic<bool> triggers_early_{false};
};

}  // namespace sparsekiln::emulator
