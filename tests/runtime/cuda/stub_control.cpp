#include "tests/runtime/cuda/stub_state.h"

#include <dlfcn.h>

namespace stub {

std::string path() {
  Dl_info info{};
  return dladdr(reinterpret_cast<const void*>(&state), &info) != 0 ? info.dli_fname : "";
}

void reset() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.recording = false;
  s.faulty = false;
  s.launches.clear();
  s.tensor_maps.clear();
  s.calls.clear();
  s.faults.clear();
  s.hidden.clear();
  s.asked.clear();
  s.resident.clear();
  s.dynamic_shared.clear();
  s.version = first_version();
}

void record() { state().recording = true; }

std::vector<Launch> launches() {
  const std::lock_guard lock(state().mutex);
  return state().launches;
}

std::vector<TensorMap> tensor_maps() {
  const std::lock_guard lock(state().mutex);
  return state().tensor_maps;
}

std::vector<std::string> calls() {
  const std::lock_guard lock(state().mutex);
  return state().calls;
}

void fail_next(const std::string& function, int result) {
  const std::lock_guard lock(state().mutex);
  state().faults[function] = static_cast<CUresult>(result);
  state().faulty = true;
}

void hide(const std::string& function) {
  const std::lock_guard lock(state().mutex);
  state().hidden.insert(function);
}

void set_version(int version) { state().version = version; }

std::vector<std::pair<std::string, int>> asked() {
  const std::lock_guard lock(state().mutex);
  return state().asked;
}

void* create_context(int device) {
  const std::lock_guard lock(state().mutex);
  return state().contexts.emplace_back(std::make_unique<CUctx_st>(device)).get();
}

void destroy_context(void* context) {
  if (!context_stack().empty() && context_stack().back() == context) context_stack().pop_back();
  const std::lock_guard lock(state().mutex);
  end(static_cast<CUcontext>(context));
}

void set_current(void* context) {
  context_stack().clear();
  if (context != nullptr) context_stack().push_back(static_cast<CUcontext>(context));
}

void* current() { return current_context(); }

int primary_references(int device) {
  const std::lock_guard lock(state().mutex);
  return state().references[device];
}

void reuse_handle(void* stream) { static_cast<CUstream>(stream)->id = state().next_id++; }

std::size_t live_modules() {
  const std::lock_guard lock(state().mutex);
  return state().modules.size();
}

std::size_t live_allocations() {
  const std::lock_guard lock(state().mutex);
  return state().allocations.size();
}

const std::vector<std::byte>& variable(const std::string& name) {
  const std::lock_guard lock(state().mutex);
  return state().last_module->variables.at(name);
}

std::vector<std::string> resident() {
  const std::lock_guard lock(state().mutex);
  return state().resident;
}

int dynamic_shared(const std::string& function) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().dynamic_shared.find(function);
  return found == state().dynamic_shared.end() ? 0 : found->second;
}

}  // namespace stub
