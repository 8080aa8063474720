#include "runtime/resident_spmm.h"

#include <utility>

#include "compiler/operand_table.h"
#include "compiler/spmm.h"
#include "oracle/arbitrary_strides.h"
#include "runtime/operands.h"

namespace sparsekiln {
namespace {

TensorView view_of(void* data, const HostActivation& activation) {
  return strided_view(data, activation.dtype, activation.rows(), activation.row_length(), activation.stride);
}

/// Makes views of activations as callers may have them.
class AnyViews {
 public:
  AnyViews(const Spmm& product, bool image_axes, std::uint64_t seed)
      : product_(product), image_axes_(image_axes), seed_(seed) {}

  [[nodiscard]] TensorView of_x(const TensorView& rows) { return of(rows, true); }
  [[nodiscard]] TensorView of_y(const TensorView& rows) { return of(rows, false); }

 private:
  TensorView of(const TensorView& rows, bool x) {
    const std::uint64_t seed = draw(seed_, made_++);
    if (!product_.correlation) return with_arbitrary_strides(rows, seed);
    const Convolution::Extents& extents = x ? product_.correlation->input : product_.correlation->output;
    if (product_.channels_first())
      return as_images(rows, seed, x ? product_.in_features() : product_.out_features(), extents,
                       product_.convolution.dimensions, image_axes_);
    return with_arbitrary_strides(rows, seed, extents, product_.convolution.dimensions, image_axes_);
  }

  const Spmm& product_;
  bool image_axes_;  ///< always, as a kernel of a dynamic convolution takes them
  std::uint64_t seed_;
  std::uint64_t made_ = 0;
};

}  // namespace

ResidentSpmm::ResidentSpmm(const Kernel& kernel, const Problem& problem, std::shared_ptr<const Device> device,
                           const HostInputs& inputs, const PoisonedOutput& output, int copies)
    : device_(std::move(device)) {
  const Spmm product(problem);
  const HostActivation x{problem.dtype,         problem.order,   product.x_rows(inputs.n),
                         product.in_features(), inputs.x_stride, {},
                         product.x_image()};
  const auto weight = [&](const std::vector<std::byte>& bytes) {
    TensorView w =
        view(place(bytes), problem.dtype, product.weight.blocks(), problem.block.out, problem.block.in);
    if (kernel.packed_elements() == 0) return w;
    memory_.push_back(std::make_unique<DeviceMemory>(device_, bytes.size()));
    kernel.pack(w, memory_.back()->data());
    w.data = memory_.back()->data();
    return w;
  };
  AnyViews any(product, kernel.binary().operands.convolution.dynamic, inputs.seed);
  const OperandContract launch = contract_of(product);
  const auto view_of_read = [&](const OperandRow& row, const HostActivation& host) {
    if (row.form == OperandForm::weight) return weight(host.bytes);
    const TensorView rows = view_of(place(host.bytes), host);
    if (row.form == OperandForm::activation)
      return row.features == Features::gradients ? any.of_x(rows) : any.of_y(rows);
    return extents_of(row.per, launch).rank == 2 ? rows : view(rows.data, host.dtype, host.features);
  };
  for (int copy = 0; copy < copies; ++copy) {
    const TensorView from = any.of_x(view_of(place(inputs.x), x));
    const TensorView to = any.of_y(output.view(place(output)));
    Operands& operands = operands_.emplace_back(operands_of(problem.operation, from, weight(inputs.w), to));
    for (const auto& [name, host] : inputs.read) {
      const OperandRow& row = operand_row(name);
      if (!row.computed(problem)) operands.*row.view = view_of_read(row, host);
    }
    for (const PoisonedOutput& computed : output.others()) {
      const OperandRow& row = operand_row(computed.name());
      const TensorView rows = computed.view(place(computed));
      operands.*row.view = row.form == OperandForm::dense ? rows : any.of_y(rows);
    }
    operands.alpha = inputs.alpha;
    operands.beta = inputs.beta;
    operands.epsilon = inputs.epsilon;
  }
  for (const auto& memory : memory_) bytes_ += memory->bytes();
  bytes_ /= static_cast<std::size_t>(copies);
}

void* ResidentSpmm::place(const std::vector<std::byte>& bytes) {
  memory_.push_back(std::make_unique<DeviceMemory>(device_, bytes.size()));
  if (!bytes.empty()) memory_.back()->copy_in(bytes.data());
  return memory_.back()->data();
}

void* ResidentSpmm::place(const PoisonedOutput& output) {
  auto memory = std::make_unique<DeviceMemory>(device_, output.image().size());
  memory->copy_in(output.image().data());
  memory_.push_back(std::move(memory));
  images_.push_back({memory_.back()->data(), output.image().size()});
  return images_.back().memory;
}

void ResidentSpmm::fetch(PoisonedOutput& output) const {
  const auto copy_out = [&](std::size_t number, PoisonedOutput& to) {
    device_->copy_out(to.image().data(), images_[number].memory, images_[number].bytes);
  };
  copy_out(0, output);
  for (std::size_t i = 0; i < output.others().size(); ++i) copy_out(i + 1, output.others()[i]);
}

}  // namespace sparsekiln
