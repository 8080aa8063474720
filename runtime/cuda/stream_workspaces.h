#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

#include "runtime/cuda/context.h"

namespace sparsekiln::cuda {

/// Workspaces of one size, one for each stream that asks, zeroed in the order of that stream. Looking up one
/// that is there takes no lock; it lives until this is destroyed. Thread-safe.
class StreamWorkspaces {
 public:
  StreamWorkspaces(std::shared_ptr<const Context> context, std::size_t bytes);
  StreamWorkspaces(const StreamWorkspaces&) = delete;
  StreamWorkspaces& operator=(const StreamWorkspaces&) = delete;
  ~StreamWorkspaces();

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  /// The context must be current. Throws `driver` where memory is short, or where the stream is being
  /// captured and has no workspace yet: memory cannot be allocated in a graph that outlives this.
  [[nodiscard]] void* of(CUstream stream);

 private:
  // A handle says which stream is meant, except that the driver uses it again for a later stream, and that
  // the per-thread default stream's handle means another stream on each thread. The driver's id for it
  // settles both.
  struct Held {
    const CUstream stream;
    std::atomic<unsigned long long> id;
    const CUdeviceptr memory;
    Held* const next;
  };

  [[nodiscard]] unsigned long long id_of(CUstream stream) const;
  [[nodiscard]] void* make(CUstream stream, unsigned long long id);

  std::shared_ptr<const Context> context_;
  std::size_t bytes_;
  std::mutex making_;
  std::atomic<Held*> first_ = nullptr;  ///< append-only, newest first
};

}  // namespace sparsekiln::cuda
