#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emulator/driver/devices.h"
#include "emulator/driver/interface.h"
#include "emulator/driver/overlap.h"
#include "emulator/machine/memory.h"
#include "emulator/program/program.h"

namespace sparsekiln::driver {

/// Where the addresses of the next context begin: a pointer of one context is none of another's, and none of
/// the host's, whose begin above the last of these.
[[nodiscard]] std::uint64_t next_base();
/// The address after the last one that any context gives out; programs and their libraries are above
/// 0x5500'0000'0000.
inline constexpr std::uint64_t kDevicesEnd = 0x4b00'0000'0000;

/// A context: memory, and what was loaded and made in it.
struct Context {
  Context(int ordinal, bool is_primary)
      : device(ordinal),
        primary(is_primary),
        memory(static_cast<std::uint64_t>(devices()[ordinal].memory_bytes), next_base()) {}

  const int device;  ///< its ordinal
  const bool primary;
  CUcontext handle = nullptr;
  std::atomic<unsigned> flags = 0;
  emulator::GlobalMemory memory;
  /// Held while a kernel runs or memory is accessed: queued work runs at once, one piece after the other.
  std::mutex work;
  std::uint64_t launches = 0;                    ///< so far; under `work`
  std::map<std::uint64_t, OverlapChain> chains;  ///< by stream id; under `work`
  /// What a kernel did wrong: from then on the answer to every call that needs this context.
  std::atomic<CUresult> fault = CUDA_SUCCESS;
};

/// What was queued: runs in its context, with `Context::work` held. `chain`: of its stream.
using Work = std::function<CUresult(Context& context, OverlapChain& chain)>;

/// Work that begins when everything that its stream did before has ended.
template <class Body>
[[nodiscard]] Work after_all(Body body) {
  return [body = std::move(body)](Context& context, OverlapChain& chain) -> CUresult {
    chain.end();
    return body(context);
  };
}

/// Work of a captured stream.
struct CapturedWork {
  std::uint64_t stream = 0;  ///< its id
  Work work;
};

/// A variable of a module.
struct Global {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
};

struct Module {
  std::shared_ptr<Context> context;
  std::map<std::string, CUfunction, std::less<>> functions;
  std::map<std::string, Global, std::less<>> globals;
  ~Module() {
    for (const auto& [name, global] : globals) context->memory.release(global.address);
  }
};

struct Function {
  std::shared_ptr<Context> context;
  CUmodule module = nullptr;
  std::shared_ptr<const emulator::Program> program;
  std::shared_ptr<const std::string> text;  ///< the PTX that it is of
  int compute_capability = 0;               ///< that the PTX is for
  int constant_bytes = 0;                   ///< of its module
  std::atomic<int> dynamic_shared_limit = 0;
  std::atomic<int> carveout = -1;
};

/// PTX that belongs to no context, and its modules in those that asked for it.
struct Library {
  std::string text;
  std::mutex mutex;
  std::map<CUcontext, CUmodule> modules;
  std::map<std::string, CUkernel, std::less<>> kernels;
};

struct Kernel {
  CUlibrary library = nullptr;
  std::string name;
};

/// A capture that is under way, of one stream or of several that were joined through events.
struct Capture {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;  ///< that began it
  std::uint64_t id = 0;
  std::vector<CapturedWork> works;  ///< in the order of the calls, which is one that the dependencies allow
  std::map<std::uint64_t, std::size_t> unjoined;  ///< by stream id: works when the stream last did something
  bool invalidated = false;
};

struct Stream {
  std::shared_ptr<Context> context;
  std::uint64_t id = 0;
  unsigned flags = CU_STREAM_DEFAULT;
  int priority = 0;
  bool capture_origin = false;       ///< these two under Process::capturing
  std::shared_ptr<Capture> capture;  ///< null where it is not captured
};

struct Event {
  std::shared_ptr<Context> context;
  unsigned flags = CU_EVENT_DEFAULT;
  std::mutex mutex;
  bool recorded = false;
  std::chrono::steady_clock::time_point at;
  std::shared_ptr<Capture> capture;  ///< where it was last recorded in one …
  std::uint64_t stream = 0;          ///< … by this stream …
  std::size_t works = 0;             ///< … after so many works
};

struct Graph {
  std::vector<CapturedWork> works;
};

struct GraphExec {
  std::shared_ptr<Context> context;
  std::vector<CapturedWork> works;
};

/// Pinned memory of the host.
struct HostMemory {
  std::shared_ptr<Context> context;
  std::unique_ptr<std::byte[]> owned;  ///< null where it was registered
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  unsigned flags = 0;
};

}  // namespace sparsekiln::driver
