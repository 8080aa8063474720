#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <utility>

#include <sparsekiln/compile.h>

#include "compiler/operand_table.h"
#include "runtime/device.h"

namespace sparsekiln {

/// What all handles of one loaded Binary share.
struct Kernel::Impl {
  explicit Impl(std::shared_ptr<const Binary> of) : binary(std::move(of)), taken(binary->operands) {}

  std::shared_ptr<const Binary> binary;
  TakenOperands taken;  ///< by a launch
  std::shared_ptr<const Device> device;
  std::unique_ptr<const Module> module;
  Digest key;

  /// For a tiered kernel. `baked` is written by the thread that makes it, before `successor` says that it is
  /// there; launches read `successor` only.
  std::unique_ptr<const Impl> baked;
  std::atomic<const Impl*> successor = nullptr;
  /// Has a state on a tiered kernel. The last member: it goes first, and going waits for the thread.
  std::shared_future<void> baking;

  /// What a launch uses.
  [[nodiscard]] const Impl& serving() const noexcept {
    const Impl* const better = successor.load(std::memory_order_acquire);
    return better == nullptr ? *this : *better;
  }
};

}  // namespace sparsekiln
