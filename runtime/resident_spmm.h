#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <sparsekiln/compile.h>

#include "oracle/poisoned_output.h"
#include "oracle/spmm_inputs.h"
#include "runtime/device.h"

namespace sparsekiln {

/// The operands of a kernel on its device, made from host memory: what measuring, checking and testing a
/// kernel begin with.
class ResidentSpmm {
 public:
  /// Packs the weight where the kernel asks for it. `output`: y's image, and others, with what they hold
  /// before. There are `copies` of each operand, each aligned as memory of the device is.
  ResidentSpmm(const Kernel& kernel, const Problem& problem, std::shared_ptr<const Device> device,
               const HostInputs& inputs, const PoisonedOutput& output, int copies = 1);

  [[nodiscard]] Operands& operator[](std::size_t copy) { return operands_[copy]; }
  [[nodiscard]] std::size_t copies() const { return operands_.size(); }
  /// Copies the first outputs back, once the device has come to rest.
  void fetch(PoisonedOutput& output) const;
  /// Bytes of one copy of all operands.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  /// Memory with the image of an output.
  void* place(const PoisonedOutput& output);
  /// Memory that holds `bytes`, or nothing for none.
  void* place(const std::vector<std::byte>& bytes);

  std::shared_ptr<const Device> device_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::vector<Operands> operands_;
  /// An output of a copy on the device.
  struct Image {
    void* memory;
    std::size_t bytes;
  };
  std::vector<Image> images_;  ///< y's of each copy, and those of what is computed besides after it
  std::size_t bytes_ = 0;
};

}  // namespace sparsekiln
