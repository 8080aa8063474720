#include "runtime/resident_spmm.h"

#include <utility>

#include "compiler/spmm.h"
#include "oracle/arbitrary_strides.h"
#include "runtime/operands.h"

namespace sparsekiln {
namespace {

TensorView view_of(void* data, const HostActivation& activation, std::uint64_t seed) {
  return with_arbitrary_strides(
      strided_view(data, activation.dtype, activation.rows(), activation.row_length(), activation.stride),
      seed);
}

}  // namespace

ResidentSpmm::ResidentSpmm(const Kernel& kernel, const Problem& problem, std::shared_ptr<const Device> device,
                           const HostInputs& inputs, const PoisonedOutput& output, int copies)
    : device_(std::move(device)), image_bytes_(output.image().size()) {
  const Spmm product(problem);
  const HostActivation x{problem.dtype, problem.order, inputs.n, product.in_features(), inputs.x_stride, {}};
  const auto weight = [&](const std::vector<std::byte>& bytes) {
    TensorView w =
        view(place(bytes), problem.dtype, problem.layout.blocks(), problem.block.out, problem.block.in);
    if (kernel.packed_elements() == 0) return w;
    memory_.push_back(std::make_unique<DeviceMemory>(device_, bytes.size()));
    kernel.pack(w, memory_.back()->data());
    w.data = memory_.back()->data();
    return w;
  };
  std::uint64_t views_made = 0;
  const auto any_seed = [&] { return draw(inputs.seed, views_made++); };
  for (int copy = 0; copy < copies; ++copy) {
    auto image = std::make_unique<DeviceMemory>(device_, image_bytes_);
    image->copy_in(output.image().data());
    images_.push_back(image->data());
    const TensorView from = view_of(place(inputs.x), x, any_seed());
    const TensorView to = with_arbitrary_strides(output.view(image->data()), any_seed());
    Operands& operands = operands_.emplace_back(operands_of(problem.operation, from, weight(inputs.w), to));
    memory_.push_back(std::move(image));
    const Epilogue& ends = problem.epilogue;
    if (ends.glu) operands.v = weight(inputs.v);
    if (ends.bias) operands.bias = view(place(inputs.bias), problem.out_dtype, product.out_features());
    if (ends.bias && ends.glu)
      operands.v_bias = view(place(inputs.v_bias), problem.out_dtype, product.out_features());
    if (ends.residual) operands.residual = view_of(place(inputs.residual.bytes), inputs.residual, any_seed());
    if (problem.derivative != Activation::none)
      operands.z = view_of(place(inputs.z.bytes), inputs.z, any_seed());
    if (problem.gates)
      operands.gates = view(place(inputs.gates), problem.sum_type(), problem.layout.blocks());
    operands.alpha = inputs.alpha;
    operands.beta = inputs.beta;
  }
  for (const auto& memory : memory_) bytes_ += memory->bytes();
  bytes_ /= static_cast<std::size_t>(copies);
}

void* ResidentSpmm::place(const std::vector<std::byte>& bytes) {
  memory_.push_back(std::make_unique<DeviceMemory>(device_, bytes.size()));
  if (!bytes.empty()) memory_.back()->copy_in(bytes.data());
  return memory_.back()->data();
}

void ResidentSpmm::fetch(PoisonedOutput& output) const {
  device_->copy_out(output.image().data(), images_.front(), image_bytes_);
}

}  // namespace sparsekiln
