#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

#include "runtime/cuda/context.h"

namespace sparsekiln::cuda {

/// Workspaces, one for each stream that asks, zeroed in the order of that stream. A stream that asks for more
/// than it has gets a larger one, twice as large at least, and what it queued goes on in the smaller one.
/// Looking up one that is there takes no lock; it lives until this is destroyed. Thread-safe.
class StreamWorkspaces {
 public:
  /// `bound` is the most that will be asked for, in bytes.
  StreamWorkspaces(std::shared_ptr<const Context> context, std::size_t bound);
  StreamWorkspaces(const StreamWorkspaces&) = delete;
  StreamWorkspaces& operator=(const StreamWorkspaces&) = delete;
  ~StreamWorkspaces();

  [[nodiscard]] std::size_t bound() const noexcept { return bound_; }

  /// At least `bytes`, which are at most the bound. The context must be current. Throws `driver` where memory
  /// is short, or where the stream is being captured.
  [[nodiscard]] void* of(CUstream stream, std::size_t bytes);

 private:
  // A handle says which stream is meant, except that the driver uses it again for a later stream, and that
  // the per-thread default stream's handle means another stream on each thread. The driver's id for it
  // settles both.
  struct Held {
    const CUstream stream;
    std::atomic<unsigned long long> id;
    const CUdeviceptr memory;
    const std::size_t bytes;
    Held* const next;
  };

  [[nodiscard]] unsigned long long id_of(CUstream stream) const;
  [[nodiscard]] void* make(CUstream stream, unsigned long long id, std::size_t bytes);

  std::shared_ptr<const Context> context_;
  std::size_t bound_;
  std::mutex making_;
  std::atomic<Held*> first_ = nullptr;  ///< append-only, newest first
};

}  // namespace sparsekiln::cuda
