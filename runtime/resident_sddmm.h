#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include <sparsekiln/compile.h>

#include "compiler/sddmm.h"
#include "oracle/sddmm_inputs.h"
#include "runtime/device.h"

namespace sparsekiln {

/// The operands of a gradient of the weight on a device, made from host memory: as ResidentSpmm.
class ResidentSddmm {
 public:
  /// `image_axes`: positions of images have axes of their own, as a kernel of a dynamic convolution takes
  /// them.
  ResidentSddmm(const Sddmm& gradient, std::shared_ptr<const Device> device, const SddmmInputs& inputs,
                const SddmmOutputs& outputs, int copies = 1, bool image_axes = false);

  [[nodiscard]] Operands& operator[](std::size_t copy) { return copies_[copy].operands; }
  [[nodiscard]] std::size_t copies() const { return copies_.size(); }
  /// Copies the first results back, once the device has come to rest.
  void fetch(SddmmOutputs& outputs) const;
  /// Bytes of one copy of all operands.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Copy {
    std::vector<ActivationPair> pairs;  ///< what `operands` refers to
    Operands operands;
    SddmmAddresses addresses;
  };
  void* place(std::span<const std::byte> bytes);

  std::shared_ptr<const Device> device_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::deque<Copy> copies_;  ///< which never move
  std::size_t bytes_ = 0;
};

}  // namespace sparsekiln
