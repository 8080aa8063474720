#include "runtime/cuda/loaded_code.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <sparsekiln/error.h>

#include "runtime/cuda/driver.h"
#include "runtime/cuda/relaxed_capture.h"
#include "runtime/cuda/upload_stream.h"
#include "runtime/device.h"

namespace sparsekiln::cuda {
namespace {

/// Whether an answer says that this code does not suit this driver or device, so that another form of it may.
/// Anything else (memory is short, the context is broken) would hit the other form as well.
bool is_about_the_code(CUresult result) {
  switch (result) {
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND:
    case CUDA_ERROR_SHARED_OBJECT_INIT_FAILED:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

std::string size_text(std::size_t bytes) {
  return bytes < 10240 ? fmt::format("{} bytes", bytes) : fmt::format("{} KB", bytes / 1024);
}

struct Jitted {
  CUmodule module = nullptr;
  CUresult result = CUDA_SUCCESS;
  std::string log;
};

/// PTX through the driver's compiler, with what that has to say.
Jitted load_ptx(const DriverApi& api, const std::string& ptx) {
  Jitted jitted;
  std::array<char, 16384> errors{};
  // The values of the options are themselves stored in the pointers, as the interface requires.
  std::array<CUjit_option, 2> options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values{errors.data(), reinterpret_cast<void*>(errors.size() - 1)};
  jitted.result = api.module_load_data(&jitted.module, ptx.c_str(), static_cast<unsigned>(options.size()),
                                       options.data(), values.data());
  jitted.log.assign(errors.data(), strnlen(errors.data(), errors.size()));
  return jitted;
}

[[noreturn]] void refuse(const ModuleData& data, const std::string& its_variable) {
  throw Error(ErrorKind::cache,
              fmt::format("a binary is damaged: it has {} bytes for the variable {}, and its code {}; "
                          "compile the kernel again",
                          data.bytes.size(), data.symbol, its_variable));
}

CUdeviceptr address_of(const Driver& driver, CUmodule module, const ModuleData& data) {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  const CUresult result = driver.api().module_get_global(&address, &bytes, module, data.symbol.c_str());
  if (result == CUDA_ERROR_NOT_FOUND) refuse(data, "has none of that name");
  driver.check(result, fmt::format("looking for the variable {} of a module", data.symbol));
  if (bytes != data.bytes.size()) refuse(data, fmt::format("has {} there", bytes));
  return address;
}

/// Writes the data of a Binary to the variables of its module; it is there when this returns. May be called
/// while streams are captured. The module's context must be current. Throws `driver`, and `cache` where the
/// module has no such variable or one of another size: then its code was not made with this data.
void upload(const Driver& driver, CUmodule module, std::span<const ModuleData> data) {
  if (data.empty()) return;
  const RelaxedCapture relaxed(driver.api());
  std::vector<CUdeviceptr> addresses;
  for (const ModuleData& one : data) addresses.push_back(address_of(driver, module, one));
  const UploadStream stream(driver, "a kernel's tables");
  for (std::size_t i = 0; i < data.size(); ++i) stream.copy(addresses[i], data[i].bytes);
  stream.wait();
}

}  // namespace

LoadedCode::LoadedCode(std::shared_ptr<const Context> context, const Binary& binary)
    : context_(std::move(context)) {
  load(binary);
  try {
    upload(context_->driver(), module_, binary.data);
  } catch (...) {
    static_cast<void>(context_->api().module_unload(module_));
    throw;
  }
}

void LoadedCode::load(const Binary& binary) {
  const Driver& driver = context_->driver();
  const DeviceInfo& device = context_->device();
  const std::string asked = fmt::format("loading a kernel for {} on {} (sm_{})", binary.target.arch,
                                        device.name, device.compute_capability);
  const RelaxedCapture relaxed(context_->api());  // a tiered kernel is loaded at any time
  std::string refused;                            // what the driver says of the cubin
  if (!binary.code.empty()) {
    const CUresult result =
        context_->api().module_load_data(&module_, binary.code.data(), 0, nullptr, nullptr);
    if (result == CUDA_SUCCESS) return;
    module_ = nullptr;
    refused = fmt::format("the cubin of {} is refused ({})", size_text(binary.code.size()),
                          driver.describe(result));
    if (!is_about_the_code(result)) driver.fail(result, asked);
  } else {
    refused = "there is no cubin";
  }
  const std::string compile_for =
      fmt::format("compile for this device (sm_{}:{})", device.compute_capability, device.multiprocessors);
  if (binary.ptx.empty()) {
    throw CodeRefused(fmt::format("{}: {}, and there is no PTX; {}", asked, refused, compile_for));
  }
  Jitted jitted = load_ptx(context_->api(), binary.ptx);
  if (jitted.result != CUDA_SUCCESS) {
    throw CodeRefused(
        fmt::format("{}: {}, and so is the PTX of {} ({}); {}, or use a driver that knows this PTX", asked,
                    refused, size_text(binary.ptx.size()), driver.describe(jitted.result), compile_for),
        std::move(jitted.log));
  }
  module_ = jitted.module;
}

LoadedCode::~LoadedCode() {
  // The driver waits for kernels of the module that still run. Where the context, or the driver itself at the
  // end of the process, is gone, so is the module.
  const ContextScope scope(*context_, std::nothrow);
  if (!scope.entered()) return;
  const RelaxedCapture relaxed(context_->api());
  static_cast<void>(context_->api().module_unload(module_));
}

CUfunction LoadedCode::function(const std::string& name) const {
  const Driver& driver = context_->driver();
  const DriverApi& api = context_->api();
  const RelaxedCapture relaxed(api);
  CUfunction function = nullptr;
  if (const CUresult result = api.module_get_function(&function, module_, name.c_str());
      result != CUDA_SUCCESS) {
    driver.fail(result, fmt::format("looking for the kernel {} in its module", name));
  }
  // Under lazy loading a function may be known and not yet resident. Drivers before cuFuncLoad load it when
  // it is asked for; asking for an attribute makes sure.
  int registers = 0;
  const CUresult result = api.func_load != nullptr
                              ? api.func_load(function)
                              : api.func_get_attribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
  if (result != CUDA_SUCCESS) driver.fail(result, fmt::format("making the kernel {} resident", name));
  return function;
}

}  // namespace sparsekiln::cuda
