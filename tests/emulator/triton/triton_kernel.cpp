#include "tests/emulator/triton/triton_kernel.h"

#include <algorithm>
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

TritonKernel::TritonKernel(const std::string& name, const Edit& edit) {
  const std::filesystem::path folder = TRITON_PTX_FOLDER;
  const nlohmann::json kernels = nlohmann::json::parse(read_file(folder / "kernels.json"));
  about_ = std::make_unique<const About>(About{kernels.at(name)});
  const std::string arch = about_->json.at("arch");
  context_ = cuda::open_emulated(std::stoi(arch.substr(arch.find('_') + 1)));
  context_->driver().check(context_->api().ctx_set_current(context_->handle()), "opening the device");
  const std::string ptx = read_file(folder / (name + ".ptx"));
  module_ = load(*context_, edit == nullptr ? ptx : edit(ptx));
  const std::string entry = about_->json.at("kernel");
  context_->driver().check(context_->api().module_get_function(&function_, module_, entry.c_str()), entry);
  context_->driver().check(
      context_->api().func_set_attribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                         about_->json.at("shared").get<int>()),
      "asking for shared memory");
}

TritonKernel::~TritonKernel() { static_cast<void>(context_->api().module_unload(module_)); }

int TritonKernel::constant(const std::string& name) const { return about_->json.at("constants").at(name); }

CUtensorMap TritonKernel::tensor_map(std::size_t index, CUdeviceptr address, int rows, int columns,
                                     int stride) const {
  const nlohmann::json& about = about_->json.at("tensor_maps").at(index);
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t row_bytes = static_cast<cuuint64_t>(stride) * about.at("elem_size").get<cuuint64_t>();
  const cuuint32_t box[2] = {about.at("block_size").at(1).get<cuuint32_t>(),
                             about.at("block_size").at(0).get<cuuint32_t>()};
  constexpr cuuint32_t kEvery[2] = {1, 1};
  CUtensorMap map;
  context_->driver().check(
      context_->api().tensor_map_encode_tiled(
          &map, static_cast<CUtensorMapDataType>(about.at("elem_type").get<int>()), 2,
          reinterpret_cast<void*>(address), sizes, &row_bytes, box, kEvery, CU_TENSOR_MAP_INTERLEAVE_NONE,
          static_cast<CUtensorMapSwizzle>(about.at("swizzle").get<int>()), CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      "making a tensor map");
  return map;
}

void TritonKernel::launch(unsigned grid_x, unsigned grid_y, std::vector<Argument> arguments) const {
  const nlohmann::json& about = about_->json;
  const auto clusters = about.value("clusters", 1u);
  const std::size_t scratch_bytes =
      about.at("global_scratch").get<std::size_t>() * grid_x * grid_y * clusters;
  const EmulatedMemory scratch(context_, std::vector<std::byte>(std::max<std::size_t>(scratch_bytes, 1)));
  if (scratch_bytes != 0) arguments.emplace_back(scratch.address());
  arguments.resize(about.at("parameters").get<std::size_t>(), CUdeviceptr{0});
  std::vector<void*> pointers;
  for (Argument& argument : arguments) std::visit([&](auto& value) { pointers.push_back(&value); }, argument);
  const cuda::DriverApi& api = context_->api();
  const unsigned threads = 32 * about.at("num_warps").get<unsigned>();
  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {clusters, 1, 1};
  CUlaunchConfig config{};
  config.gridDimX = grid_x * clusters;
  config.gridDimY = grid_y;
  config.gridDimZ = 1;
  config.blockDimX = threads;
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = about.at("shared").get<unsigned>();
  config.attrs = &cluster;
  config.numAttrs = clusters > 1 ? 1 : 0;
  CUresult result = api.launch_kernel_ex(&config, function_, pointers.data(), nullptr);
  if (result == CUDA_SUCCESS) result = api.ctx_synchronize();
  if (result != CUDA_SUCCESS)
    throw Error(ErrorKind::driver,
                fmt::format("{}: {}", context_->driver().describe(result), cuda::Emulator().last_report()));
}
