#include <algorithm>
#include <utility>

#include "emulator/driver/call.h"
#include "emulator/driver/capture.h"

// Streams and events (CUDA Driver API 13.0, sections 6.18 and 6.19). Queued work has run when the call
// that queued it returns, so nothing here waits but for other threads.

using namespace sparsekiln::driver;

namespace {

constexpr unsigned kEventFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

/// The launches of a stream have ended.
void end_chain(const StreamUse& stream) {
  const std::lock_guard lock(stream.context->work);
  stream.context->chains.erase(stream.id);
}

/// Waits for what other threads run, and says what became of it.
CUresult settled(Context& context) {
  const std::lock_guard lock(context.work);
  return context.fault;
}

/// What an event says, with its lock held by none.
struct Recorded {
  bool recorded = false;
  bool captured = false;
  std::chrono::steady_clock::time_point at;
};

Recorded look_at(Event& event) {
  const std::lock_guard lock(event.mutex);
  return {event.recorded, event.capture != nullptr, event.at};
}

/// A call about an event that was last recorded outside a capture.
template <class Body>
CUresult for_event(CUevent handle, Body body) noexcept {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    const auto event = process().events.find(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (look_at(*event).captured) return CUDA_ERROR_CAPTURED_EVENT;
    return body(*event);
  });
}

CUresult elapsed_time(float* milliseconds, CUevent start, CUevent end) {
  return for_event(start, [&](Event& first) -> CUresult {
    if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto last = process().events.find(end);
    if (last == nullptr || last->context != first.context) return CUDA_ERROR_INVALID_HANDLE;
    const Recorded from = look_at(first);
    const Recorded to = look_at(*last);
    if (to.captured) return CUDA_ERROR_CAPTURED_EVENT;
    if (!from.recorded || !to.recorded || ((first.flags | last->flags) & CU_EVENT_DISABLE_TIMING) != 0)
      return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = std::chrono::duration<float, std::milli>(to.at - from.at).count();
    return CUDA_SUCCESS;
  });
}

CUresult make_stream(CUstream* made, unsigned flags, int priority) {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    if (made == nullptr || (flags != CU_STREAM_DEFAULT && flags != CU_STREAM_NON_BLOCKING))
      return CUDA_ERROR_INVALID_VALUE;
    auto stream = std::make_shared<Stream>();
    stream->context = context;
    stream->flags = flags;
    stream->priority = std::clamp(priority, -5, 0);
    stream->id = next_handle();
    *made = process().streams.add(std::move(stream));
    return CUDA_SUCCESS;
  });
}

/// An event recorded in a captured stream belongs to the capture: its time is when the graph runs, and it
/// cannot be queried.
bool record_in_capture(const StreamUse& stream, Event& event) {
  const std::lock_guard lock(process().capturing);
  if (stream.made == nullptr || stream.made->capture == nullptr) return false;
  const std::lock_guard event_lock(event.mutex);
  event.capture = stream.made->capture;
  event.stream = stream.id;
  event.works = event.capture->works.size();
  return true;
}

/// Joins `stream` to the capture that an event was recorded in, or an earlier branch to the stream.
CUresult wait_in_capture(const StreamUse& stream, const std::shared_ptr<Capture>& capture,
                         const Event& event) {
  const std::lock_guard lock(process().capturing);
  if (stream.made == nullptr) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.made->capture == nullptr) {
    stream.made->capture = capture;
    capture->unjoined[stream.id] = capture->works.size();
    return CUDA_SUCCESS;
  }
  if (stream.made->capture != capture) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  // What follows depends on more than the launch before it, and overlaps nothing.
  capture->works.push_back({stream.id, after_all([](Context&) { return CUDA_SUCCESS; })});
  const auto branch = capture->unjoined.find(event.stream);
  if (event.stream != stream.id && branch != capture->unjoined.end() && event.works >= branch->second)
    capture->unjoined.erase(branch);
  return CUDA_SUCCESS;
}

/// Says of the calling thread that it runs a function of the host's.
class HostFunction {
 public:
  HostFunction() { in_host_function() = true; }
  ~HostFunction() { in_host_function() = false; }
  HostFunction(const HostFunction&) = delete;
  HostFunction& operator=(const HostFunction&) = delete;
};

}  // namespace

// ---- streams ----

CUresult cuStreamCreate(CUstream* stream, unsigned flags) { return make_stream(stream, flags, 0); }

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return make_stream(stream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    const auto stream = process().streams.remove(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    {
      const std::lock_guard lock(stream->context->work);
      stream->context->chains.erase(stream->id);
    }
    const std::lock_guard lock(process().capturing);
    if (stream->capture == nullptr) return CUDA_SUCCESS;
    stream->capture->invalidated = true;
    if (stream->capture_origin) std::erase(process().captures, stream->capture);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return in_context(EMULATOR_FAULT_SYNCHRONIZE, [&](const std::shared_ptr<Context>& context) -> CUresult {
    StreamUse stream;
    if (const CUresult result = find_stream(context, handle, stream); result != CUDA_SUCCESS) return result;
    if (const CUresult result = refuse_if_captured(stream); result != CUDA_SUCCESS) return result;
    end_chain(stream);
    return settled(*context);
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return for_stream(handle, [](const StreamUse& stream) -> CUresult {
    if (const CUresult result = refuse_if_captured(stream); result != CUDA_SUCCESS) return result;
    end_chain(stream);
    return settled(*stream.context);
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
  return for_stream(handle, [&](const StreamUse& stream) -> CUresult {
    const auto event = process().events.find(event_handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    std::shared_ptr<Capture> capture;
    {
      const std::lock_guard lock(event->mutex);
      capture = event->capture;
    }
    if (capture != nullptr) return wait_in_capture(stream, capture, *event);
    {
      const std::lock_guard lock(process().capturing);
      if (stream.made != nullptr && stream.made->capture != nullptr)
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    end_chain(stream);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return for_stream(handle, [&](const StreamUse& stream) { return answer(context, stream.context->handle); });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return for_stream(handle, [&](const StreamUse& stream) { return answer(id, stream.id); });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  return for_stream(handle, [&](const StreamUse& stream) {
    return answer(flags, stream.made == nullptr ? unsigned{CU_STREAM_DEFAULT} : stream.made->flags);
  });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return for_stream(handle, [&](const StreamUse& stream) {
    return answer(priority, stream.made == nullptr ? 0 : stream.made->priority);
  });
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  return for_stream(handle, [&](const StreamUse& stream) -> CUresult {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, after_all([function, data](Context&) -> CUresult {
                    const HostFunction running;
                    function(data);
                    return CUDA_SUCCESS;
                  }));
  });
}

// ---- events ----

CUresult cuEventCreate(CUevent* made, unsigned flags) {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    if (made == nullptr || (flags & ~kEventFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_EVENT_INTERPROCESS) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    auto event = std::make_shared<Event>();
    event->context = context;
    event->flags = flags;
    *made = process().events.add(std::move(event));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent handle) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    return process().events.remove(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  return for_stream(stream_handle, [&](const StreamUse& stream) -> CUresult {
    const auto event = process().events.find(handle);
    if (event == nullptr || event->context != stream.context) return CUDA_ERROR_INVALID_HANDLE;
    if (record_in_capture(stream, *event)) return CUDA_SUCCESS;
    return submit(stream, after_all([event](Context&) -> CUresult {
                    const std::lock_guard lock(event->mutex);
                    event->capture = nullptr;
                    event->recorded = true;
                    event->at = std::chrono::steady_clock::now();
                    return CUDA_SUCCESS;
                  }));
  });
}

CUresult cuEventQuery(CUevent handle) {
  return for_event(handle, [](Event& event) -> CUresult { return settled(*event.context); });
}

CUresult cuEventSynchronize(CUevent handle) {
  if (process().initialised) {
    if (const CUresult planned = process().planned_fault(EMULATOR_FAULT_SYNCHRONIZE); planned != CUDA_SUCCESS)
      return planned;
  }
  return for_event(handle, [](Event& event) -> CUresult { return settled(*event.context); });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return elapsed_time(milliseconds, start, end);
}

#if CUDA_VERSION >= 12080
CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return elapsed_time(milliseconds, start, end);
}
#endif
