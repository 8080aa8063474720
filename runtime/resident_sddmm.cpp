#include "runtime/resident_sddmm.h"

#include <utility>

namespace sparsekiln {

ResidentSddmm::ResidentSddmm(const Sddmm& gradient, std::shared_ptr<const Device> device,
                             const SddmmInputs& inputs, const SddmmOutputs& outputs, int copies,
                             bool image_axes)
    : device_(std::move(device)) {
  for (int i = 0; i < copies; ++i) {
    Copy& copy = copies_.emplace_back();
    SddmmAddresses& at = copy.addresses;
    for (const SddmmInputs::Pair& pair : inputs.pairs)
      at.pairs.push_back({place(pair.x), place(pair.dy), place(pair.z)});
    at.w = place(inputs.w);
    at.block_scales = place(inputs.block_scales);
    at.dw = place(outputs.dw.image());
    at.dbias = place(outputs.dbias.image());
    at.dblock_scales = place(outputs.dblock_scales.image());
    copy.operands = operands_of(gradient, inputs, outputs, at, image_axes, copy.pairs);
  }
  for (const auto& memory : memory_) bytes_ += memory->bytes();
  bytes_ /= static_cast<std::size_t>(copies);
}

void* ResidentSddmm::place(std::span<const std::byte> bytes) {
  memory_.push_back(std::make_unique<DeviceMemory>(device_, bytes.size()));
  if (!bytes.empty()) memory_.back()->copy_in(bytes.data());
  return memory_.back()->data();
}

void ResidentSddmm::fetch(SddmmOutputs& outputs) const {
  const auto copy = [&](PoisonedOutput& output, const void* from) {
    device_->copy_out(output.image().data(), from, output.image().size());
  };
  const SddmmAddresses& at = copies_.front().addresses;
  copy(outputs.dw, at.dw);
  copy(outputs.dbias, at.dbias);
  copy(outputs.dblock_scales, at.dblock_scales);
}

}  // namespace sparsekiln
