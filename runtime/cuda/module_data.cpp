#include "runtime/cuda/module_data.h"

#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <sparsekiln/error.h>

#include "runtime/cuda/relaxed_capture.h"
#include "runtime/cuda/upload_stream.h"

namespace sparsekiln::cuda {
namespace {

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

}  // namespace

void upload(const Driver& driver, CUmodule module, std::span<const ModuleData> data) {
  if (data.empty()) return;
  const RelaxedCapture relaxed(driver.api());
  std::vector<CUdeviceptr> addresses;
  for (const ModuleData& one : data) addresses.push_back(address_of(driver, module, one));
  const UploadStream stream(driver, "a kernel's tables");
  for (std::size_t i = 0; i < data.size(); ++i) stream.copy(addresses[i], data[i].bytes);
  stream.wait();
}

}  // namespace sparsekiln::cuda
