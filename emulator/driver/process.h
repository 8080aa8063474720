#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "emulator/driver/objects.h"
#include "emulator/driver/registry.h"
#include "emulator/machine/counters.h"

namespace sparsekiln::driver {

/// The primary context of a device.
struct Primary {
  CUcontext handle = nullptr;  ///< the same for the life of the process
  int references = 0;
  unsigned flags = 0;
};

/// Counters of one kernel, whatever module it was loaded from: all that have the same text.
struct KernelCounters {
  std::shared_ptr<const emulator::Program> program;
  std::shared_ptr<const std::string> text;
  emulator::Counters counters;
  std::uint64_t last_run = 0;  ///< counted over all kernels
};

/// A fault to come (emulatorFailCall).
struct PlannedFault {
  unsigned after = 0;  ///< calls; 0: none
  CUresult result = CUDA_SUCCESS;
};

/// All that the C interface keeps between calls: there is one a process, and it is never destroyed.
struct Process {
  Process();

  std::atomic<bool> initialised = false;

  Registry<CUcontext, Context> contexts;
  Registry<CUmodule, Module> modules;
  Registry<CUfunction, Function> functions;
  Registry<CUlibrary, Library> libraries;
  Registry<CUkernel, Kernel> kernels;
  Registry<CUstream, Stream> streams;
  Registry<CUevent, Event> events;
  Registry<CUgraph, Graph> graphs;
  Registry<CUgraphExec, GraphExec> executables;
  Registry<void*, HostMemory> host_memory;  ///< by its first address

  std::mutex primary_mutex;
  std::vector<Primary> primaries;  ///< by ordinal

  std::mutex capturing;
  std::vector<std::shared_ptr<Capture>> captures;

  std::atomic<std::uint64_t> seed = 0;
  std::atomic<unsigned> checks = EMULATOR_CHECK_ALL;
  std::atomic<int> threads = 0;
  bool blocking_launches = false;  ///< CUDA_LAUNCH_BLOCKING=1: a launch itself answers with its fault

  std::mutex fault_mutex;
  std::array<PlannedFault, EMULATOR_FAULT_KINDS> faults;

  std::mutex report_mutex;
  std::shared_ptr<const std::string> report;  ///< null where no kernel failed
  std::vector<KernelCounters> counters;
  std::uint64_t runs = 0;

  /// What a call of one sort shall answer instead of doing anything; CUDA_SUCCESS: let it go on.
  [[nodiscard]] CUresult planned_fault(int kind);
  void set_report(std::string text);
  void count(const Function& function, const emulator::Counters& counters);
  /// Removes a context and everything in it.
  void destroy(CUcontext handle);
};

[[nodiscard]] Process& process();

/// Contexts of one thread, the current one last. No destructor: what ends with the process may call when the
/// thread's own objects are gone.
class ContextStack {
 public:
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] CUcontext back() const { return contexts_[size_ - 1]; }
  void push_back(CUcontext context) {
    if (size_ == contexts_.size()) throw std::bad_alloc();
    contexts_[size_++] = context;
  }
  void pop_back() { --size_; }

 private:
  std::array<CUcontext, 256> contexts_;
  std::size_t size_;
};

/// Whether the calling thread runs a function of the host's that was queued (cuLaunchHostFunc), with the
/// context's work held: it may not call the driver, which would wait for itself.
[[nodiscard]] bool& in_host_function();

/// The contexts of the calling thread; the current one is the last.
[[nodiscard]] ContextStack& context_stack();

}  // namespace sparsekiln::driver
