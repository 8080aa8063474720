#include "runtime/cuda/stream_workspaces.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include <sparsekiln/error.h>

#include "runtime/cuda/relaxed_capture.h"

namespace sparsekiln::cuda {
namespace {

/// What a stream gets at least, where the bound is not below it. A dynamic kernel's bound is for the largest
/// batch it can be asked for, gigabytes, of which most processes need a few.
constexpr std::size_t kLeast = std::size_t{1} << 20;

/// A graph may be replayed beside other launches, also of another graph captured on the same stream, and must
/// not share a workspace with them. The legacy default stream cannot be captured.
void refuse_captured(const Context& context, CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  context.driver().check(context.api().stream_is_capturing(stream, &status),
                         "asking whether the stream of a launch is being captured");
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return;
  throw Error(ErrorKind::driver,
              "the stream is being captured into a graph, and this kernel needs a workspace, which a graph "
              "must not share: "
              "pass one as `workspace`, of workspace_bytes(n) bytes, the first workspace_counter_bytes() of "
              "them zero, for this graph "
              "alone");
}

}  // namespace

StreamWorkspaces::StreamWorkspaces(std::shared_ptr<const Context> context, std::size_t bound)
    : context_(std::move(context)), bound_(bound) {}

StreamWorkspaces::~StreamWorkspaces() {
  Held* held = first_.load(std::memory_order_acquire);
  if (held == nullptr) return;
  const ContextScope scope(*context_, std::nothrow);
  const RelaxedCapture relaxed(context_->api());
  while (held != nullptr) {
    // Where the context is gone, so is its memory.
    if (scope.entered()) static_cast<void>(context_->api().mem_free(held->memory));
    delete std::exchange(held, held->next);
  }
}

unsigned long long StreamWorkspaces::id_of(CUstream stream) const {
  const DriverApi& api = context_->api();
  unsigned long long id = 0;
  if (api.stream_get_id != nullptr) {
    context_->driver().check(api.stream_get_id(stream, &id), "asking for the id of the stream of a launch");
  } else if (stream == CU_STREAM_PER_THREAD) {
    throw Error(
        ErrorKind::driver,
        "a workspace for the per-thread default stream: this driver cannot tell one thread's from another's; "
        "pass `workspace`, use another stream, or update the driver to CUDA 12");
  }
  return id;
}

void* StreamWorkspaces::of(CUstream stream, std::size_t bytes) {
  refuse_captured(*context_, stream);
  const unsigned long long id = id_of(stream);
  for (Held* held = first_.load(std::memory_order_acquire); held != nullptr; held = held->next) {
    if (held->stream == stream && held->bytes >= bytes && held->id.load(std::memory_order_acquire) == id) {
      return reinterpret_cast<void*>(held->memory);
    }
  }
  return make(stream, id, bytes);
}

void* StreamWorkspaces::make(CUstream stream, unsigned long long id, std::size_t bytes) {
  const Driver& driver = context_->driver();
  const DriverApi& api = context_->api();
  const std::lock_guard lock(making_);
  Held* const newest = first_.load(std::memory_order_acquire);
  Held* earlier = nullptr;  // of a stream that had this handle before
  for (Held* held = newest; held != nullptr; held = held->next) {
    if (held->stream != stream || held->bytes < bytes) continue;
    if (held->id.load(std::memory_order_relaxed) == id) return reinterpret_cast<void*>(held->memory);
    if (stream != CU_STREAM_PER_THREAD) earlier = held;
  }
  const RelaxedCapture relaxed(api);
  const auto zero = [&](CUdeviceptr memory, std::size_t size) {
    driver.check(api.memset_d8_async(memory, 0, size, stream), "zeroing the workspace of a stream");
  };
  // The stream that had this handle is destroyed, but what it queued may still run. Where the driver does not
  // let it be waited for, as while another stream is captured, this one gets memory of its own.
  if (earlier != nullptr && api.ctx_synchronize() == CUDA_SUCCESS) {
    zero(earlier->memory, earlier->bytes);
    earlier->id.store(id, std::memory_order_release);
    return reinterpret_cast<void*>(earlier->memory);
  }
  const std::size_t size = std::min(bound_, std::max(kLeast, std::bit_ceil(bytes)));
  CUdeviceptr memory = 0;
  if (const CUresult result = api.mem_alloc(&memory, size); result != CUDA_SUCCESS) {
    driver.fail(result,
                fmt::format("allocating a workspace of {} bytes on {}", size, context_->device().name));
  }
  try {
    zero(memory, size);
    first_.store(new Held{stream, id, memory, size, newest}, std::memory_order_release);
  } catch (...) {
    static_cast<void>(api.mem_free(memory));
    throw;
  }
  return reinterpret_cast<void*>(memory);
}

}  // namespace sparsekiln::cuda
