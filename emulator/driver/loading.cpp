#include "emulator/driver/loading.h"

#include <cctype>
#include <utility>

#include "emulator/program/decode.h"
#include "emulator/ptx/parse.h"

namespace sparsekiln::driver {
namespace {

/// The newest PTX ISA whose instructions this emulator was written from: 9.x of CUDA 13.
constexpr int kNewestMajor = 9;

bool starts_with(const void* image, std::initializer_list<unsigned char> magic) {
  const auto* at = static_cast<const unsigned char*>(image);
  for (const unsigned char byte : magic)
    if (*at++ != byte) return false;
  return true;
}

bool is_machine_code(const void* image) {
  return starts_with(image, {0x7f, 'E', 'L', 'F'}) ||     // a cubin
         starts_with(image, {0x50, 0xed, 0x55, 0xba}) ||  // a fatbin
         starts_with(image, {0xb1, 0x43, 0x62, 0x46});    // and what nvcc wraps around one
}

/// The first thing in a text that is neither white space nor a comment.
std::string_view after_comments(std::string_view text) {
  for (;;) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0)
      text.remove_prefix(1);
    const bool line = text.starts_with("//");
    if (!line && !text.starts_with("/*")) return text;
    const std::size_t end = text.find(line ? "\n" : "*/", 2);
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + (line ? 1 : 2));
  }
}

/// The major number of `.version 9.0`; 0 where it cannot be read, which the parser then says.
int major_version(std::string_view text) {
  text = after_comments(text);
  constexpr std::string_view kVersion = ".version";
  if (!text.starts_with(kVersion)) return 0;
  text = after_comments(text.substr(kVersion.size()));
  int major = 0;
  while (!text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) != 0 && major < 1000) {
    major = 10 * major + (text.front() - '0');
    text.remove_prefix(1);
  }
  return major;
}

/// As ptxas has it: what is for a newer device, or for exactly another one, cannot run on this.
void check_target(const ptx::Module& module, int compute_capability) {
  const bool runs = module.architecture_specific ? module.compute_capability == compute_capability
                                                 : module.compute_capability <= compute_capability;
  if (runs) return;
  throw LoadError(CUDA_ERROR_NO_BINARY_FOR_GPU,
                  "PTX for .target sm_" + std::to_string(module.compute_capability) +
                      (module.architecture_specific ? "a" : "") + " does not run on sm_" +
                      std::to_string(compute_capability));
}

/// A module that is being loaded: takes back what it made unless it is finished.
class Loading {
 public:
  explicit Loading(const std::shared_ptr<Context>& context)
      : context_(context), no_launch_(context->work), module_(std::make_shared<Module>()) {
    module_->context = context;
    handle_ = reinterpret_cast<CUmodule>(next_handle());
  }

  void add_variable(const ptx::Variable& variable) {
    if (variable.space != ptx::Space::global && variable.space != ptx::Space::constant) return;
    if (variable.external || variable.bytes == 0)
      throw LoadError(CUDA_ERROR_INVALID_PTX,
                      "variable " + variable.name + " is extern, and nothing is linked to it");
    emulator::GlobalMemory& memory = module_->context->memory;
    const bool constant = variable.space == ptx::Space::constant;
    const emulator::Allocation* const made = memory.allocate(variable.bytes, constant, variable.name);
    if (made == nullptr) throw LoadError(CUDA_ERROR_OUT_OF_MEMORY, "no memory for variable " + variable.name);
    addresses_[variable.name] = made->address;
    module_->globals[variable.name] = {made->address, variable.bytes};
    if (constant) constant_bytes_ += static_cast<int>(variable.bytes);
    // A variable without an initial value is zero (PTX ISA 9.0, 5.4.4).
    memory.fill(made->address, 0, variable.bytes);
    if (!variable.initial.empty())
      memory.write(made->address, variable.initial.data(),
                   std::min<std::uint64_t>(variable.initial.size(), variable.bytes));
  }

  void add_kernel(const ptx::Module& module, const ptx::Function& function,
                  const std::shared_ptr<const std::string>& text) {
    auto made = std::make_shared<Function>();
    made->context = module_->context;
    made->module = handle_;
    made->program = std::make_shared<const emulator::Program>(emulator::decode(module, function, addresses_));
    made->text = text;
    made->compute_capability = module.compute_capability;
    made->constant_bytes = constant_bytes_;
    const std::uint32_t shared = made->program->shared_bytes;
    if (shared > std::uint32_t{kSharedWithoutAsking})
      throw LoadError(CUDA_ERROR_INVALID_PTX, "kernel " + function.name + " uses " + std::to_string(shared) +
                                                  " bytes of static shared memory, and " +
                                                  std::to_string(kSharedWithoutAsking) + " is the most");
    made->dynamic_shared_limit = kSharedWithoutAsking - static_cast<int>(shared);
    functions_.emplace_back(function.name, std::move(made));
  }

  CUmodule finish() {
    for (auto& [name, function] : functions_)
      module_->functions[name] = process().functions.add(std::move(function));
    process().modules.add(handle_, std::move(module_));
    return handle_;
  }

 private:
  const std::shared_ptr<Context> context_;
  const std::lock_guard<std::mutex> no_launch_;  ///< a launch knows all allocations: none may go meanwhile
  std::shared_ptr<Module> module_;
  CUmodule handle_ = nullptr;
  emulator::Addresses addresses_;
  int constant_bytes_ = 0;
  std::vector<std::pair<std::string, std::shared_ptr<Function>>> functions_;
};

}  // namespace

std::string ptx_of(const void* image) {
  if (is_machine_code(image))
    throw LoadError(CUDA_ERROR_NO_BINARY_FOR_GPU,
                    "machine code: the emulator runs PTX, and this image has none");
  const char* const text = static_cast<const char*>(image);
  if (!after_comments(text).starts_with(".version"))
    throw LoadError(CUDA_ERROR_INVALID_IMAGE, "neither machine code nor PTX, which begins with .version");
  return text;
}

CUmodule load_module(const std::shared_ptr<Context>& context, std::string text) {
  if (major_version(text) > kNewestMajor)
    throw LoadError(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "PTX " + std::to_string(major_version(text)) +
                                                            ".x is newer than the emulator, which knows " +
                                                            std::to_string(kNewestMajor) + ".x");
  try {
    const auto kept = std::make_shared<const std::string>(std::move(text));
    const ptx::Module module = ptx::parse(*kept);
    check_target(module, devices()[context->device].compute_capability);
    Loading loading(context);
    for (const ptx::Variable& variable : module.variables) loading.add_variable(variable);
    for (const ptx::Function& function : module.functions) loading.add_kernel(module, function, kept);
    return loading.finish();
  } catch (const ptx::Error& error) {
    throw LoadError(CUDA_ERROR_INVALID_PTX, error.what());
  }
}

bool unload_module(CUmodule handle) {
  std::shared_ptr<Module> module = process().modules.remove(handle);
  if (module == nullptr) return false;
  const std::shared_ptr<Context> context = module->context;
  const std::lock_guard lock(context->work);  // waits for kernels, which know its variables
  for (const auto& [name, function] : module->functions) process().functions.remove(function);
  module.reset();
  return true;
}

}  // namespace sparsekiln::driver
