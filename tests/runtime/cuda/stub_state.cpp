#include "tests/runtime/cuda/stub_state.h"

#include <cstdlib>

namespace stub {

int first_version() {
  const char* const given = std::getenv("SPARSEKILN_TEST_DRIVER_VERSION");
  return given == nullptr ? 13000 : std::atoi(given);
}

State& state() {
  static State* const kept = new State;  // outlives whatever is destroyed at the end of the process
  return *kept;
}

std::vector<CUcontext>& context_stack() {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

CUresult note(const char* function) {
  State& s = state();
  if (!s.recording.load(std::memory_order_relaxed) && !s.faulty.load(std::memory_order_relaxed))
    return CUDA_SUCCESS;
  const std::lock_guard lock(s.mutex);
  if (s.recording) s.calls.emplace_back(function);
  const auto fault = s.faults.find(function);
  if (fault == s.faults.end()) return CUDA_SUCCESS;
  const CUresult result = fault->second;
  s.faults.erase(fault);
  s.faulty = !s.faults.empty();
  return result;
}

CUresult note_in_context(const char* function) {
  if (const CUresult result = note(function); result != CUDA_SUCCESS) return result;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return current_context()->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool is_special(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

CUresult note_on_stream(const char* function, CUstream stream) {
  if (const CUresult result = note_in_context(function); result != CUDA_SUCCESS) return result;
  return is_special(stream) || stream->context == current_context() ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_INVALID_HANDLE;
}

void end(CUcontext context) {
  State& s = state();
  context->alive = false;
  std::erase_if(s.modules, [&](CUmodule module) {
    if (module->context != context) return false;
    for (auto& [name, function] : module->functions) function.context = nullptr;
    s.unloaded.push_back(module);
    return true;
  });
  std::erase_if(s.allocations, [&](const auto& allocation) {
    if (allocation.second != context) return false;
    std::free(allocation.first);
    return true;
  });
  for (CUstream stream : s.streams)
    if (stream->context == context) stream->context = nullptr;
}

}  // namespace stub
