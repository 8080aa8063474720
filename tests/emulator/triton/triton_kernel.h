#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "runtime/cuda/emulator.h"

/// Device memory on the emulator that outlives the launches which it is given to.
class EmulatedMemory {
 public:
  EmulatedMemory(std::shared_ptr<const sparsekiln::cuda::Context> context,
                 const std::vector<std::byte>& content);
  EmulatedMemory(const EmulatedMemory&) = delete;
  EmulatedMemory& operator=(const EmulatedMemory&) = delete;
  ~EmulatedMemory();
  [[nodiscard]] CUdeviceptr address() const { return address_; }
  [[nodiscard]] std::vector<std::byte> read() const;

 private:
  std::shared_ptr<const sparsekiln::cuda::Context> context_;
  CUdeviceptr address_ = 0;
  std::size_t bytes_;
};

/// A kernel that Triton compiled: ptx/NAME.ptx and what ptx/kernels.json says of NAME; compile_triton.py
/// describes both.
class TritonKernel {
 public:
  using Argument = std::variant<CUdeviceptr, std::int32_t, std::int64_t, float, CUtensorMap>;
  using Edit = std::function<std::string(const std::string& ptx)>;

  explicit TritonKernel(const std::string& name, const Edit& edit = nullptr);
  TritonKernel(const TritonKernel&) = delete;
  TritonKernel& operator=(const TritonKernel&) = delete;
  ~TritonKernel();

  [[nodiscard]] const std::shared_ptr<const sparsekiln::cuda::Context>& context() const { return context_; }
  /// What was compiled in, such as BLOCK_M.
  [[nodiscard]] int constant(const std::string& name) const;
  /// A tensor map of a row-major f16 matrix, as `index` of the kernel's descriptors wants it.
  [[nodiscard]] CUtensorMap tensor_map(std::size_t index, CUdeviceptr address, int rows, int columns,
                                       int stride) const;
  /// Runs it to its end. `arguments` without the scratch pointers that Triton adds. Throws Error with the
  /// emulator's report.
  void launch(unsigned grid_x, unsigned grid_y, std::vector<Argument> arguments) const;

 private:
  struct About;
  std::unique_ptr<const About> about_;
  std::shared_ptr<const sparsekiln::cuda::Context> context_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};
