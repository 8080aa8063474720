#include "emulator/driver/capture.h"

#include <map>
#include <utility>
#include <vector>

// Stream capture and graphs (CUDA Driver API 13.0, sections 6.18 and 6.24; Programming Guide, "CUDA Graphs").

namespace sparsekiln::driver {
namespace {

/// cuThreadExchangeStreamCaptureMode's.
CUstreamCaptureMode& thread_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

/// The number of the legacy default stream.
constexpr std::uint64_t kLegacyStream = 1;

/// Whether `capture` forbids the calling thread calls that are not safe during the capture.
bool forbids(const Capture& capture) {
  const CUstreamCaptureMode mode = thread_mode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  const bool own = capture.thread == std::this_thread::get_id();
  if (own) return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

/// The captures that a stream would have to wait for: the legacy one waits for every stream of its context
/// that was not made non-blocking. Process::capturing is held.
std::vector<std::shared_ptr<Capture>> waited_for(const StreamUse& stream) {
  std::vector<std::shared_ptr<Capture>> captures;
  if (!stream.legacy) return captures;
  for (const auto& other : process().streams.all())
    if (other->context == stream.context && other->capture != nullptr && other->flags == CU_STREAM_DEFAULT)
      captures.push_back(other->capture);
  return captures;
}

/// The legacy stream and those that were not made non-blocking wait for each other. Context::work is held.
void end_legacy_chains(const StreamUse& stream) {
  std::map<std::uint64_t, OverlapChain>& chains = stream.context->chains;
  if (stream.legacy)
    std::erase_if(chains, [&](const auto& chain) { return chain.first != stream.id; });
  else if (stream.made == nullptr || stream.made->flags == CU_STREAM_DEFAULT)
    chains.erase(kLegacyStream);
}

/// A stream that is captured cannot be waited for. Process::capturing is held.
CUresult refuse_implicit(const StreamUse& stream) {
  const auto captures = waited_for(stream);
  for (const auto& capture : captures) capture->invalidated = true;
  return captures.empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

/// The number of the calling thread's own default stream.
std::uint64_t per_thread_stream_id() {
  thread_local const std::uint64_t id = next_handle();
  return id;
}

}  // namespace

CUresult find_stream(const std::shared_ptr<Context>& current, CUstream handle, StreamUse& use) {
  use.context = current;
  if (handle == nullptr || handle == CU_STREAM_LEGACY) {
    use.legacy = true;
    use.id = kLegacyStream;
    return CUDA_SUCCESS;
  }
  if (handle == CU_STREAM_PER_THREAD) {
    use.id = per_thread_stream_id();
    return CUDA_SUCCESS;
  }
  use.made = process().streams.find(handle);
  if (use.made == nullptr || use.made->context != current) return CUDA_ERROR_INVALID_HANDLE;
  use.id = use.made->id;
  return CUDA_SUCCESS;
}

CUresult submit(const StreamUse& stream, Work work) {
  {
    const std::lock_guard lock(process().capturing);
    if (stream.made != nullptr && stream.made->capture != nullptr) {
      Capture& capture = *stream.made->capture;
      if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      capture.works.push_back({stream.id, std::move(work)});
      if (!stream.made->capture_origin) capture.unjoined[stream.id] = capture.works.size();
      return CUDA_SUCCESS;
    }
    if (const CUresult refused = refuse_implicit(stream); refused != CUDA_SUCCESS) return refused;
  }
  const std::lock_guard lock(stream.context->work);
  end_legacy_chains(stream);
  return work(*stream.context, stream.context->chains[stream.id]);
}

CUresult refuse_while_capturing() {
  const std::lock_guard lock(process().capturing);
  bool forbidden = false;
  for (const auto& capture : process().captures) {
    if (!forbids(*capture)) continue;
    capture->invalidated = true;
    forbidden = true;
  }
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult refuse_if_captured(const StreamUse& stream) {
  const std::lock_guard lock(process().capturing);
  if (stream.made == nullptr || stream.made->capture == nullptr) return refuse_implicit(stream);
  stream.made->capture->invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

}  // namespace sparsekiln::driver

using namespace sparsekiln::driver;

namespace {

CUresult begin_capture(CUstream handle, CUstreamCaptureMode mode) {
  return for_stream(handle, [&](const StreamUse& stream) -> CUresult {
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
        mode != CU_STREAM_CAPTURE_MODE_RELAXED)
      return CUDA_ERROR_INVALID_VALUE;
    if (stream.made == nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const std::lock_guard lock(process().capturing);
    if (stream.made->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->id = next_handle();
    process().captures.push_back(capture);
    stream.made->capture = std::move(capture);
    stream.made->capture_origin = true;
    return CUDA_SUCCESS;
  });
}

/// Ends a capture for all streams that took part. Process::capturing is held.
void release_streams(const std::shared_ptr<Capture>& capture) {
  for (const auto& stream : process().streams.all()) {
    if (stream->capture != capture) continue;
    stream->capture = nullptr;
    stream->capture_origin = false;
  }
  std::erase(process().captures, capture);
}

CUresult end_capture(const Stream& stream, std::shared_ptr<Capture>& capture) {
  const std::lock_guard lock(process().capturing);
  capture = stream.capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (!stream.capture_origin) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  release_streams(capture);
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  return capture->unjoined.empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

CUresult instantiate(CUgraphExec* made, CUgraph handle) {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    const auto graph = process().graphs.find(handle);
    if (made == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *made = process().executables.add(std::make_shared<GraphExec>(GraphExec{context, graph->works}));
    return CUDA_SUCCESS;
  });
}

}  // namespace

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return call([&]() -> CUresult {
    if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
      return CUDA_ERROR_INVALID_VALUE;
    std::swap(*mode, thread_mode());
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin_capture(stream, mode);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return for_stream(handle, [&](const StreamUse& stream) -> CUresult {
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *graph = nullptr;
    if (stream.made == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    std::shared_ptr<Capture> capture;
    if (const CUresult result = end_capture(*stream.made, capture); result != CUDA_SUCCESS) return result;
    *graph = process().graphs.add(std::make_shared<Graph>(Graph{std::move(capture->works)}));
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return for_stream(handle, [&](const StreamUse& stream) -> CUresult {
    if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const std::lock_guard lock(process().capturing);
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    // A question spoils no capture.
    if (stream.made == nullptr)
      return waited_for(stream).empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (stream.made->capture != nullptr)
      *status = stream.made->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                  : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  return instantiate(executable, graph);
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return in_context(EMULATOR_FAULT_LAUNCH, [&](const std::shared_ptr<Context>& context) -> CUresult {
    const auto executable = process().executables.find(handle);
    StreamUse stream;
    if (executable == nullptr || executable->context != context) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = find_stream(context, stream_handle, stream); result != CUDA_SUCCESS)
      return result;
    return submit(stream, after_all([executable](Context& where) -> CUresult {
                    std::map<std::uint64_t, OverlapChain> chains;  // by captured stream
                    for (const CapturedWork& captured : executable->works)
                      if (const CUresult result = captured.work(where, chains[captured.stream]);
                          result != CUDA_SUCCESS)
                        return result;
                    return CUDA_SUCCESS;
                  }));
  });
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    return process().executables.find(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  return call([&]() -> CUresult {
    return process().executables.remove(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph handle) {
  return call([&]() -> CUresult {
    return process().graphs.remove(handle) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}
