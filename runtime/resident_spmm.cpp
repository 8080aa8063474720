#include "runtime/resident_spmm.h"

#include <string_view>
#include <utility>

#include <sparsekiln/error.h>

#include "compiler/edge_runs.h"
#include "compiler/spmm.h"
#include "oracle/arbitrary_strides.h"
#include "runtime/operands.h"

namespace sparsekiln {
namespace {

TensorView Operands::* operand_of(std::string_view computed) {
  struct Row {
    std::string_view name;
    TensorView Operands::* operand;
  };
  constexpr Row kComputed[]{{"activations", &Operands::activations}, {"c", &Operands::c},
                            {"dc_before", &Operands::dc_before},     {"sums", &Operands::sums},
                            {"statistics", &Operands::statistics},   {"dmultiplier", &Operands::dmultiplier},
                            {"daddend", &Operands::daddend},         {"dnorm", &Operands::dnorm}};
  for (const Row& row : kComputed)
    if (row.name == computed) return row.operand;
  throw Error(ErrorKind::internal, "no operand is computed as an image is");
}

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
    if (ends.row_scale) operands.row_scale = view(place(inputs.row_scale), DType::f32, product.out_blocks());
    if (ends.row_scale && ends.glu)
      operands.v_row_scale = view(place(inputs.v_row_scale), DType::f32, product.out_blocks());
    const auto of_end = [&](TensorView Operands::* operand, const HostActivation& matrix) {
      if (matrix.features != 0) operands.*operand = any.of_y(view_of(place(matrix.bytes), matrix));
    };
    of_end(&Operands::projection, inputs.cell.projection);
    of_end(&Operands::activations, inputs.cell.activations);
    of_end(&Operands::c_before, inputs.cell.c_before);
    of_end(&Operands::c, inputs.cell.c);
    of_end(&Operands::dc, inputs.cell.dc);
    const HostNormalisation& normalisation = inputs.normalisation;
    if (ends.layer_norm) {
      const std::int64_t width = product.normalised_features() * product.groups_of_sums();
      operands.gain = view(place(normalisation.gain), problem.out_dtype, width);
      operands.bias = view(place(normalisation.bias), problem.out_dtype, width);
      operands.epsilon = normalisation.epsilon;
    }
    of_end(&Operands::multiplier, normalisation.multiplier);
    of_end(&Operands::addend, normalisation.addend);
    of_end(&Operands::sums, normalisation.sums);
    of_end(&Operands::statistics, normalisation.statistics);
    for (const PoisonedOutput& computed : output.others()) {
      const TensorView rows = computed.view(place(computed));
      operands.*operand_of(computed.name()) = computed.name() == "dnorm" ? rows : any.of_y(rows);
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
  for (std::size_t i = 0; i < output.others().size(); ++i) copy_out(i + 1, output.others()[i]);
}

}  // namespace sparsekiln
