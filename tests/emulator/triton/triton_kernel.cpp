#include "tests/emulator/triton/triton_kernel.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <nlohmann/json.hpp>

using namespace sparsekiln;

namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path);
  if (!stream) throw Error(ErrorKind::invalid_argument, fmt::format("{} cannot be read", path.string()));
  return {std::istreambuf_iterator<char>(stream), {}};
}

CUmodule load(const cuda::Context& context, const std::string& ptx) {
  std::array<char, 4096> log{};
  std::array<CUjit_option, 2> options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values{log.data(), reinterpret_cast<void*>(log.size() - 1)};
  CUmodule module = nullptr;
  const CUresult result =
      context.api().module_load_data(&module, ptx.c_str(), 2, options.data(), values.data());
  if (result != CUDA_SUCCESS)
    throw Error(ErrorKind::driver, fmt::format("{}: {}", context.driver().describe(result), log.data()));
  return module;
}

}  // namespace

struct TritonKernel::About {
  nlohmann::json json;
};

EmulatedMemory::EmulatedMemory(std::shared_ptr<const cuda::Context> context,
                               const std::vector<std::byte>& content)
    : context_(std::move(context)), bytes_(content.size()) {
  const cuda::Driver& driver = context_->driver();
  driver.check(driver.api().mem_alloc(&address_, bytes_), "allocating memory");
  driver.check(driver.api().memcpy_htod(address_, content.data(), bytes_), "copying to the device");
}

EmulatedMemory::~EmulatedMemory() { static_cast<void>(context_->api().mem_free(address_)); }

std::vector<std::byte> EmulatedMemory::read() const {
  std::vector<std::byte> content(bytes_);
  context_->driver().check(context_->api().memcpy_dtoh(content.data(), address_, bytes_),
                           "copying from the device");
  return content;
}

TritonKernel::TritonKernel(const std::string& name) {
  const std::filesystem::path stem = std::filesystem::path(TRITON_PTX_FOLDER) / name;
  about_ = std::make_unique<const About>(About{nlohmann::json::parse(read_file(stem.string() + ".json"))});
  const std::string arch = about_->json.at("arch");
  context_ = cuda::open_emulated(std::stoi(arch.substr(arch.find('_') + 1)));
  context_->driver().check(context_->api().ctx_set_current(context_->handle()), "opening the device");
  module_ = load(*context_, read_file(stem.string() + ".ptx"));
  const std::string entry = about_->json.at("kernel");
  context_->driver().check(context_->api().module_get_function(&function_, module_, entry.c_str()), entry);
}

TritonKernel::~TritonKernel() { static_cast<void>(context_->api().module_unload(module_)); }

int TritonKernel::constant(const std::string& name) const { return about_->json.at("constants").at(name); }

void TritonKernel::launch(unsigned grid_x, unsigned grid_y, std::vector<Argument> arguments) const {
  const nlohmann::json& about = about_->json;
  // Nothing here asks for scratch memory: its pointers are null.
  arguments.resize(about.at("arguments").size(), CUdeviceptr{0});
  std::vector<void*> pointers;
  for (Argument& argument : arguments) std::visit([&](auto& value) { pointers.push_back(&value); }, argument);
  const cuda::DriverApi& api = context_->api();
  const unsigned threads = 32 * about.at("num_warps").get<unsigned>();
  CUresult result = api.launch_kernel(function_, grid_x, grid_y, 1, threads, 1, 1,
                                      about.at("shared").get<unsigned>(), nullptr, pointers.data(), nullptr);
  if (result == CUDA_SUCCESS) result = api.ctx_synchronize();
  if (result != CUDA_SUCCESS)
    throw Error(ErrorKind::driver,
                fmt::format("{}: {}", context_->driver().describe(result), cuda::Emulator().last_report()));
}
