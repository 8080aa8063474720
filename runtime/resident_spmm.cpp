#include "runtime/resident_spmm.h"

#include <utility>

#include "compiler/edge_runs.h"
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
  for (int copy = 0; copy < copies; ++copy) {
    const TensorView from = any.of_x(view_of(place(inputs.x), x));
    const TensorView to = any.of_y(output.view(place(output)));
    Operands& operands = operands_.emplace_back(operands_of(problem.operation, from, weight(inputs.w), to));
    const Epilogue& ends = problem.epilogue;
    if (ends.glu) operands.v = weight(inputs.v);
    if (ends.bias) operands.bias = view(place(inputs.bias), problem.out_dtype, product.out_features());
    if (ends.bias && ends.glu)
      operands.v_bias = view(place(inputs.v_bias), problem.out_dtype, product.out_features());
    if (ends.residual) operands.residual = any.of_y(view_of(place(inputs.residual.bytes), inputs.residual));
    if (problem.derivative != Activation::none)
      operands.z = any.of_x(view_of(place(inputs.z.bytes), inputs.z));
    if (problem.gates)
      operands.gates = view(place(inputs.gates), problem.sum_type(), product.block_gates.count());
    if (ends.edge_bias) {
      const auto rows = static_cast<std::int64_t>(count_edge_situations(problem));
      operands.edge_gain = view(place(inputs.edge_gain), problem.sum_type(), rows, product.out_features());
      operands.edge_bias = view(place(inputs.edge_bias), problem.sum_type(), rows, product.out_features());
    }
    const auto of_cell = [&](TensorView Operands::* operand, const HostActivation& matrix) {
      if (matrix.features != 0) operands.*operand = any.of_y(view_of(place(matrix.bytes), matrix));
    };
    of_cell(&Operands::projection, inputs.cell.projection);
    of_cell(&Operands::activations, inputs.cell.activations);
    of_cell(&Operands::c_before, inputs.cell.c_before);
    of_cell(&Operands::c, inputs.cell.c);
    of_cell(&Operands::dc, inputs.cell.dc);
    for (const PoisonedOutput& computed : output.cell()) {
      const TensorView view = any.of_y(computed.view(place(computed)));
      (computed.name() == "c"           ? operands.c
       : computed.name() == "dc_before" ? operands.dc_before
                                        : operands.activations) = view;
    }
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
  for (std::size_t i = 0; i < output.cell().size(); ++i) copy_out(i + 1, output.cell()[i]);
}

}  // namespace sparsekiln
