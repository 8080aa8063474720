#include "runtime/resident_gradient.h"

#include <utility>

namespace sparsekiln {

ResidentGradient::ResidentGradient(const Sddmm& gradient, std::shared_ptr<const Device> device,
                                   const WeightGradientInputs& inputs, const WeightGradientOutputs& outputs,
                                   int copies)
    : device_(std::move(device)) {
  for (int i = 0; i < copies; ++i) {
    Copy& copy = copies_.emplace_back();
    WeightGradientAddresses& at = copy.addresses;
    for (const WeightGradientInputs::Pair& pair : inputs.pairs)
      at.pairs.push_back({place(pair.x), place(pair.dy), place(pair.z)});
    at.w = place(inputs.w);
    at.gates = place(inputs.gates);
    at.dw = place(outputs.dw.image());
    at.dbias = place(outputs.dbias.image());
    at.dgates = place(outputs.dgates.image());
    copy.operands = operands_of(gradient, inputs, outputs, at, copy.pairs);
  }
  for (const auto& memory : memory_) bytes_ += memory->bytes();
  bytes_ /= static_cast<std::size_t>(copies);
}

void* ResidentGradient::place(std::span<const std::byte> bytes) {
  memory_.push_back(std::make_unique<DeviceMemory>(device_, bytes.size()));
  if (!bytes.empty()) memory_.back()->copy_in(bytes.data());
  return memory_.back()->data();
}

void ResidentGradient::fetch(WeightGradientOutputs& outputs) const {
  const auto copy = [&](PoisonedOutput& output, const void* from) {
    device_->copy_out(output.image().data(), from, output.image().size());
  };
  const WeightGradientAddresses& at = copies_.front().addresses;
  copy(outputs.dw, at.dw);
  copy(outputs.dbias, at.dbias);
  copy(outputs.dgates, at.dgates);
}

}  // namespace sparsekiln
