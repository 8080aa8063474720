#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <cuda.h>

#include "tests/runtime/cuda/stub_launch.h"

// The driver's structures, as the handles of cuda.h name them.
struct CUctx_st {
  int device = 0;
  std::atomic<bool> alive = true;
};

struct CUfunc_st {
  CUcontext context = nullptr;
  std::string name;
  std::vector<std::size_t> sizes;  // of its parameters
  int dynamic_shared = 0;
};

struct CUmod_st {
  CUcontext context = nullptr;
  std::map<std::string, CUfunc_st> functions;
  std::map<std::string, std::vector<std::byte>> variables;
  bool any = false;  // a real cubin: what it holds is not looked at
};

struct CUstream_st {
  CUcontext context = nullptr;
  unsigned long long id = 0;
  std::atomic<bool> capturing = false;
  std::vector<stub::Launch> captured;
};

struct CUgraph_st {
  std::vector<stub::Launch> launches;
};

struct CUgraphExec_st {
  CUcontext context = nullptr;
  std::vector<stub::Launch> launches;
};

struct CUevent_st {
  CUcontext context = nullptr;
  unsigned long long at = 0;
};

namespace stub {

struct StubDevice {
  const char* name;
  const char* pci_bus_id;
  int major, minor, multiprocessors;
};
constexpr StubDevice kDevices[] = {{"Stub H100", "0000:65:00.0", 9, 0, 132},
                                   {"Stub T4", "0000:b3:00.0", 7, 5, 40}};
constexpr int kDeviceCount = 2;

/// 13000, or what SPARSEKILN_TEST_DRIVER_VERSION says.
int first_version();

/// All that the stub keeps between calls; there is one a process.
struct State {
  std::mutex mutex;
  std::atomic<bool> recording = false;
  std::atomic<bool> faulty = false;
  std::vector<stub::Launch> launches;
  std::vector<stub::TensorMap> tensor_maps;
  std::vector<std::string> calls;
  std::map<std::string, CUresult> faults;
  std::set<std::string> hidden;
  std::vector<std::pair<std::string, int>> asked;
  int version = first_version();

  CUctx_st primary[kDeviceCount] = {{0, false}, {1, false}};
  int references[kDeviceCount] = {0, 0};
  std::vector<std::unique_ptr<CUctx_st>> contexts;
  std::set<CUmodule> modules;
  CUmodule last_module = nullptr;  // may be gone
  std::vector<CUmodule> unloaded;  // with their contexts: a launch of theirs is answered, not a crash
  std::map<void*, CUcontext> allocations;
  std::set<CUstream> streams;
  std::vector<std::string> resident;
  std::map<std::string, int> dynamic_shared;
  std::atomic<unsigned long long> next_id = 100;
  std::atomic<unsigned long long> clock = 0;
};

[[nodiscard]] State& state();

/// The contexts of the calling thread, the current one last.
[[nodiscard]] std::vector<CUcontext>& context_stack();
[[nodiscard]] inline CUcontext current_context() {
  return context_stack().empty() ? nullptr : context_stack().back();
}

/// Notes a call; what it shall answer.
[[nodiscard]] CUresult note(const char* function);
/// As `note`, for a call that needs a living current context.
[[nodiscard]] CUresult note_in_context(const char* function);
[[nodiscard]] bool is_special(CUstream stream);
/// As `note_in_context`, for a call that takes a stream, which must be of that context.
[[nodiscard]] CUresult note_on_stream(const char* function, CUstream stream);
/// As `note_in_context`, for a call about something that was made in a context: that one must be current.
template <typename Handle>
[[nodiscard]] CUresult note_about(const char* function, Handle made) {
  if (const CUresult result = note_in_context(function); result != CUDA_SUCCESS) return result;
  return made->context == current_context() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/// Ends a context, also where it is current; its modules and memory go with it. The state's mutex is held.
void end(CUcontext context);

}  // namespace stub
