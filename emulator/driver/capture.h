#pragma once

#include <memory>

#include "emulator/driver/call.h"
#include "emulator/driver/process.h"

namespace sparsekiln::driver {

/// A stream as a call names it: one that was made, or one of the two that every context has.
struct StreamUse {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> made;  ///< null for a default stream
  bool legacy = false;           ///< the default stream that others wait for
  std::uint64_t id = 0;
};

/// What a handle means in the current context. CUDA_ERROR_INVALID_HANDLE for none of this context.
[[nodiscard]] CUresult find_stream(const std::shared_ptr<Context>& current, CUstream handle, StreamUse& use);

/// A call about a stream: `body(StreamUse&)`.
template <class Body>
CUresult for_stream(CUstream handle, Body body) noexcept {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    StreamUse stream;
    const CUresult result = find_stream(context, handle, stream);
    return result == CUDA_SUCCESS ? body(stream) : result;
  });
}

/// Queues work: runs it now, or keeps it where the stream is being captured.
[[nodiscard]] CUresult submit(const StreamUse& stream, Work work);

/// For calls that a capture does not allow: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the capture is spoilt
/// (cuThreadExchangeStreamCaptureMode says when).
[[nodiscard]] CUresult refuse_while_capturing();

/// For calls that wait for a stream or ask about it.
[[nodiscard]] CUresult refuse_if_captured(const StreamUse& stream);

}  // namespace sparsekiln::driver
