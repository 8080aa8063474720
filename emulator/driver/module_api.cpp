#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "emulator/driver/call.h"
#include "emulator/driver/capture.h"
#include "emulator/driver/loading.h"

// Modules, libraries and functions (CUDA Driver API 13.0, sections 6.10 to 6.12, 6.22).

using namespace sparsekiln::driver;

namespace {

/// Where the caller of cuModuleLoadDataEx wants to read what went wrong.
class ErrorLog {
 public:
  ErrorLog(unsigned count, const CUjit_option* options, void** values) {
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER) buffer_ = static_cast<char*>(values[i]);
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) size_ = &values[i];
      // Nothing is ever written there, which is said.
      if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) values[i] = nullptr;
    }
  }

  /// Cuts what does not fit, and says how much was written.
  void write(const std::string& message) {
    if (size_ == nullptr) return;
    const auto capacity =
        static_cast<std::size_t>(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(*size_)));
    std::size_t written = 0;
    if (buffer_ != nullptr && capacity != 0) {
      written = std::min(message.size(), capacity - 1);
      std::memcpy(buffer_, message.data(), written);
      buffer_[written] = '\0';
    }
    *size_ = reinterpret_cast<void*>(written);
  }

 private:
  char* buffer_ = nullptr;
  void** size_ = nullptr;
};

/// `load()`, with what it throws made an answer and a log.
template <class Load>
CUresult logged(ErrorLog log, Load load) {
  try {
    load();
    log.write("");
    return CUDA_SUCCESS;
  } catch (const LoadError& error) {
    process().set_report(error.what());
    log.write(error.what());
    return error.result();
  }
}

CUresult load_data(CUmodule* module, const void* image, unsigned count, CUjit_option* options,
                   void** values) {
  return in_context(EMULATOR_FAULT_LOAD, [&](const std::shared_ptr<Context>& context) -> CUresult {
    if (module == nullptr || image == nullptr || (count != 0 && (options == nullptr || values == nullptr)))
      return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult refused = refuse_while_capturing(); refused != CUDA_SUCCESS) return refused;
    return logged(ErrorLog(count, options, values), [&] { *module = load_module(context, ptx_of(image)); });
  });
}

/// A call about a function of the current context.
template <class Body>
CUresult for_function(CUfunction handle, Body body) noexcept {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    const auto function = process().functions.find(handle);
    if (function == nullptr || function->context != context) return CUDA_ERROR_INVALID_HANDLE;
    return body(*function);
  });
}

int threads_per_block(const Function& function) {
  const unsigned most = function.program->function.max_threads;
  return most == 0 ? kThreadsPerBlock : std::min(static_cast<int>(most), kThreadsPerBlock);
}

CUresult get_attribute(const Function& function, CUfunction_attribute which, int& value) {
  const std::pair<CUfunction_attribute, int> known[] = {
      {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, threads_per_block(function)},
      {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, static_cast<int>(function.program->shared_bytes)},
      {CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, function.constant_bytes},
      {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, static_cast<int>(function.program->local_bytes)},
      {CU_FUNC_ATTRIBUTE_PTX_VERSION, function.compute_capability},
      {CU_FUNC_ATTRIBUTE_BINARY_VERSION, devices()[function.context->device].compute_capability},
      {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function.dynamic_shared_limit},
      {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, function.carveout},
      {CU_FUNC_ATTRIBUTE_NUM_REGS, 0},  // PTX has as many as it likes: nothing allocates them here
      {CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, 0},
      {CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, 0},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 0},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 0},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 0},
      {CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 0},
      {CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 0},
  };
  for (const auto& [attribute, of_function] : known)
    if (attribute == which) return answer(&value, of_function);
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult set_attribute(Function& function, CUfunction_attribute which, int value) {
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const int most = devices()[function.context->device].shared_per_block_by_asking -
                       static_cast<int>(function.program->shared_bytes);
      if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
      function.dynamic_shared_limit = value;
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      function.carveout = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

/// The module of a library in the current context, loaded when it is first asked for.
CUresult module_of(const std::shared_ptr<Context>& context, CUlibrary handle, CUmodule& module) {
  const auto library = process().libraries.find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(library->mutex);
  CUmodule& known = library->modules[context->handle];
  if (known != nullptr && process().modules.find(known) == nullptr)
    known = nullptr;  // its context was another
  if (known == nullptr) {
    const CUresult result =
        logged(ErrorLog(0, nullptr, nullptr), [&] { known = load_module(context, library->text); });
    if (result != CUDA_SUCCESS) return result;
  }
  module = known;
  return CUDA_SUCCESS;
}

}  // namespace

// ---- modules ----

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return load_data(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* options,
                            void** values) {
  return load_data(module, image, count, options, values);
}

CUresult cuModuleLoad(CUmodule* module, const char* path) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return guarded([&]() -> CUresult {
    std::ifstream file(path, std::ios::binary);
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    const std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    return load_data(module, image.c_str(), 0, nullptr, nullptr);
  });
}

CUresult cuModuleUnload(CUmodule module) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    if (const CUresult refused = refuse_while_capturing(); refused != CUDA_SUCCESS) return refused;
    return unload_module(module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return call([&] { return answer(mode, CU_MODULE_EAGER_LOADING); });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto module = process().modules.find(handle);
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const auto found = module->functions.find(std::string_view(name));
    if (found == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
    *function = found->second;
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle, const char* name) {
  return in_context([&](const std::shared_ptr<Context>&) -> CUresult {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto module = process().modules.find(handle);
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const auto found = module->globals.find(std::string_view(name));
    if (found == module->globals.end()) return CUDA_ERROR_NOT_FOUND;
    if (address != nullptr) *address = found->second.address;
    if (bytes != nullptr) *bytes = found->second.bytes;
    return CUDA_SUCCESS;
  });
}

// ---- libraries ----

CUresult cuLibraryLoadData(CUlibrary* made, const void* image, CUjit_option* options, void** values,
                           unsigned count, CUlibraryOption*, void**, unsigned) {
  return call([&]() -> CUresult {
    if (made == nullptr || image == nullptr || (count != 0 && (options == nullptr || values == nullptr)))
      return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult planned = process().planned_fault(EMULATOR_FAULT_LOAD); planned != CUDA_SUCCESS)
      return planned;
    return logged(ErrorLog(count, options, values), [&] {
      auto library = std::make_shared<Library>();
      library->text = ptx_of(image);
      const CUlibrary handle = process().libraries.add(library);
      *made = handle;
      std::shared_ptr<Context> context;
      if (current_context(context) != CUDA_SUCCESS) return;
      try {
        library->modules[context->handle] = load_module(context, library->text);
      } catch (...) {
        process().libraries.remove(handle);
        throw;
      }
    });
  });
}

CUresult cuLibraryUnload(CUlibrary handle) {
  return call([&]() -> CUresult {
    const auto library = process().libraries.remove(handle);
    if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    std::map<CUcontext, CUmodule> modules;
    {
      const std::lock_guard lock(library->mutex);
      modules.swap(library->modules);
    }
    for (const auto& [context, module] : modules) unload_module(module);
    for (const auto& [name, kernel] : library->kernels) process().kernels.remove(kernel);
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    return module == nullptr ? CUDA_ERROR_INVALID_VALUE : module_of(context, library, *module);
  });
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUmodule module = nullptr;
    if (const CUresult result = module_of(context, handle, module); result != CUDA_SUCCESS) return result;
    CUfunction function = nullptr;
    if (const CUresult result = cuModuleGetFunction(&function, module, name); result != CUDA_SUCCESS)
      return result;
    const auto library = process().libraries.find(handle);
    if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const std::lock_guard lock(library->mutex);
    const auto [place, fresh] = library->kernels.try_emplace(name, nullptr);
    if (fresh) place->second = process().kernels.add(std::make_shared<Kernel>(Kernel{handle, name}));
    *kernel = place->second;
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel handle) {
  return in_context([&](const std::shared_ptr<Context>& context) -> CUresult {
    const auto kernel = process().kernels.find(handle);
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    CUmodule module = nullptr;
    const CUresult result = module_of(context, kernel->library, module);
    return result == CUDA_SUCCESS ? cuModuleGetFunction(function, module, kernel->name.c_str()) : result;
  });
}

// ---- functions ----

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction handle) {
  return for_function(handle, [&](const Function& function) -> CUresult {
    return value == nullptr ? CUDA_ERROR_INVALID_VALUE : get_attribute(function, which, *value);
  });
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute which, int value) {
  return for_function(handle, [&](Function& function) { return set_attribute(function, which, value); });
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  return for_function(handle, [&](const Function&) -> CUresult {
    return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
  return for_function(handle, [&](const Function& function) { return answer(module, function.module); });
}

#if CUDA_VERSION >= 12040
CUresult cuFuncLoad(CUfunction handle) {
  return for_function(handle, [](const Function&) -> CUresult { return CUDA_SUCCESS; });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  return for_function(handle,
                      [&](const Function&) { return answer(state, CU_FUNCTION_LOADING_STATE_LOADED); });
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  return for_function(handle, [&](const Function& function) {
    return answer(name, function.program->function.name.c_str());
  });
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* bytes) {
  return for_function(handle, [&](const Function& function) -> CUresult {
    const auto& parameters = function.program->function.parameters;
    if (offset == nullptr || index >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
    *offset = parameters[index].offset;
    if (bytes != nullptr) *bytes = parameters[index].bytes;
    return CUDA_SUCCESS;
  });
}
#endif
