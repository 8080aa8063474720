#include "runtime/operand_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sparsekiln/error.h>

#include "compiler/block_gates.h"
#include "compiler/correlation.h"
#include "compiler/problem_kind.h"
#include "runtime/end_matrices.h"
#include "runtime/operand_images.h"
#include "runtime/operand_refusal.h"
#include "runtime/operand_region.h"
#include "runtime/operands.h"
#include "runtime/weight_check.h"

namespace sparsekiln {
namespace {

std::string device_name(std::int32_t device) {
  return device == kHostDevice ? "the host" : fmt::format("CUDA device {}", device);
}
[[noreturn, gnu::cold]] void refuse_device(std::string_view name, std::int32_t is, std::int32_t wanted) {
  refuse(name, fmt::format("it lies on {}, the kernel is on {}", device_name(is), device_name(wanted)));
}
/// What every launch of an operation takes.
std::string main_operands(Operation operation) {
  switch (kind_of(operation)) {
    case ProblemKind::spmm:
      return fmt::format("{}, w and {}", places_of(operation).from_name, places_of(operation).to_name);
    case ProblemKind::sddmm:
      return "x, dy (or pairs of them) and dw";
  }
  return {};
}
[[noreturn, gnu::cold]] void refuse_missing(std::string_view name, const OperandContract& contract) {
  std::string takes = main_operands(contract.operation);
  if (contract.derivative != Activation::none) takes += ", z";
  if (contract.gates) takes += ", gates";
  if (contract.bias_gradient) takes += ", dbias";
  if (contract.gate_gradient) takes += ", w and dgates";
  const Epilogue& ends = contract.epilogue;
  if (ends != Epilogue{}) takes += fmt::format(", and what its epilogue {} needs", to_string(ends));
  refuse(name, fmt::format("it was not given; a kernel of {} takes {}", sparsekiln::name(contract.operation),
                           takes));
}
[[noreturn, gnu::cold]] void refuse_matrix(std::string_view name, const TensorView& is, std::int64_t features,
                                           bool feature_major) {
  const std::string matrix =
      feature_major ? fmt::format("[{}, n]", features) : fmt::format("[n, {}]", features);
  refuse_shape(name, is, matrix + ", or a batch of such matrices");
}
[[noreturn, gnu::cold]] void refuse_dense(std::string_view name, const TensorView& is,
                                          std::span<const std::int64_t> shape, std::string_view meaning) {
  refuse_strides(name, is, fmt::format("dense [{}]{}", fmt::join(shape, ", "), meaning));
}
[[noreturn, gnu::cold]] void refuse_images_beside(const Activation2D& is, const Activation2D& first) {
  if (is.images) refuse(is.name, fmt::format("it has {} images, but {} has {}", is.n, first.name, first.n));
  refuse(is.name,
         fmt::format("its {} rows are {} images of {} positions, but {} has {} images, for which it "
                     "takes {} rows",
                     is.batch_rows(), is.n, is.positions, first.name, first.n, first.n * is.positions));
}
void check_device(std::string_view name, const TensorView& view, std::int32_t device) {
  if (view.device != kAnyDevice && view.device != device) refuse_device(name, view.device, device);
}

/// What an activation is of: x and dx of the layer's inputs, y and dy of its outputs.
struct Side {
  std::int64_t features = 0;
  Convolution::Extents extents{};  ///< of a convolution's images
};
Side inputs_of(const OperandContract& contract, const ImageExtents& images) {
  return {contract.in_features, images.inputs};
}
Side outputs_of(const OperandContract& contract, const ImageExtents& images) {
  return {contract.out_features, images.outputs};
}
/// The side with the features of all gates of an LSTM's cell.
Side of_gates(Side side, const OperandContract& contract) {
  side.features *= contract.gates_of_cell();
  return side;
}

/// `alignment`: bytes; where smaller than an element, an element's.
Activation2D check_activation(std::string_view name, const TensorView& view, DType type, const Side& side,
                              std::int64_t alignment, const OperandContract& contract, std::int32_t device) {
  if (view.rank == 0) refuse_missing(name, contract);
  if (view.dtype != type) refuse_type(name, view.dtype, type);
  check_device(name, view, device);
  if (contract.convolution.present()) return check_images(name, view, side.extents, side.features, contract);
  const std::int64_t features = side.features;
  const bool feature_major = contract.feature_major();
  const int first = view.rank == 3 ? 1 : 0;  // axis of a matrix's rows
  if (view.rank != 2 && view.rank != 3) refuse_matrix(name, view, features, feature_major);
  const std::int64_t rows = view.shape[first];
  const std::int64_t row = view.shape[first + 1];
  Activation2D result;
  result.name = name;
  result.view = &view;
  result.n = feature_major ? row : rows;
  if (view.rank == 3) result.matrices = view.shape[0];
  if ((feature_major ? rows : row) != features || result.n < 0 || result.matrices < 0)
    refuse_matrix(name, view, features, feature_major);
  const auto bytes = static_cast<std::int64_t>(size_of(type));
  // The state of an LSTM's cell may have larger elements than the activations that the contract speaks of.
  alignment = std::max(alignment, bytes);
  const std::int64_t unit = alignment / bytes;
  // An axis of extent 1 may have any stride. Kernels form the addresses of rows beyond the last one, too;
  // they read nothing there, but what they copy must be aligned.
  result.stride = rows > 1 ? view.stride[first] : (row + unit - 1) / unit * unit;
  result.joined_stride = result.stride;
  if (rows == 0 || row == 0 || result.matrices == 0) return result;
  check_address(name, view.data, alignment);
  if ((row > 1 && view.stride[first + 1] != 1) ||
      (rows > 1 && (result.stride < row || result.stride % unit != 0)))
    refuse_stride(name, view.stride[first], view.stride[first + 1], row, unit);
  if (result.matrices == 1) return result;
  result.matrix_bytes = view.stride[0] * bytes;
  if (result.matrix_bytes % alignment != 0)
    refuse(name, fmt::format("its matrices are {} bytes apart, which is no multiple of {}",
                             result.matrix_bytes, alignment));
  if (rows == 1) result.joined_stride = view.stride[0];
  result.joins =
      !feature_major && (rows == 1 ? view.stride[0] >= row : view.stride[0] == rows * result.stride);
  return result;
}

/// `meaning`: of the shape, which follows it in the message.
Region check_dense(std::string_view name, const TensorView& view, DType type,
                   std::initializer_list<std::int64_t> shape, const OperandContract& contract,
                   std::int32_t device, std::string_view meaning = "") {
  if (view.rank == 0) refuse_missing(name, contract);
  if (view.dtype != type) refuse_type(name, view.dtype, type);
  check_device(name, view, device);
  const std::span wanted(shape);
  bool shaped = view.rank == std::ssize(wanted);
  bool dense = true;
  std::int64_t elements = 1;
  for (std::size_t axis = wanted.size(); shaped && axis-- > 0;) {
    shaped = view.shape[axis] == wanted[axis];
    dense = dense && (wanted[axis] == 1 || view.stride[axis] == elements);
    elements *= wanted[axis];
  }
  if (!shaped || (!dense && elements != 0)) refuse_dense(name, view, wanted, meaning);
  const auto element = static_cast<std::int64_t>(size_of(type));
  if (elements != 0) check_address(name, view.data, element);
  return {name, static_cast<const std::byte*>(view.data), 1, elements * element, elements * element};
}

Region check_weight(std::string_view name, const TensorView& w, DType type, const OperandContract& contract,
                    std::int32_t device) {
  if (w.rank == 0 && contract.blocks != 0) refuse_missing(name, contract);
  check_device(name, w, device);
  if (contract.packed && w.rank != 0)
    check_packed(name, w, contract);
  else
    check_blocks(name, w, type, contract);
  const std::int64_t bytes = weight_elements(contract) * static_cast<std::int64_t>(size_of(type));
  return {name, static_cast<const std::byte*>(w.data), 1, bytes, bytes};
}

/// True where activations are one matrix of a batch that the kernel takes, else they are a batch of such
/// matrices.
template <std::size_t kCount>
bool join_matrices(const Activation2D* const (&activations)[kCount], const OperandContract& contract,
                   CheckedOperands& checked) {
  const Activation2D& first = *activations[0];
  bool join = true;
  for (const Activation2D* other : activations) {
    if (other == nullptr) continue;
    if (contract.convolution.present() && other->n != first.n) refuse_images_beside(*other, first);
    if (other->n != first.n || other->matrices != first.matrices)
      refuse(other->name, fmt::format("{} matrices of {} batch rows, but {} has {} of {}", other->matrices,
                                      other->n, first.name, first.matrices, first.n));
    join = join && other->joins;
  }
  checked.first.n = first.n;
  checked.matrices = first.matrices;
  std::int64_t all = 0;
  if (join && !__builtin_mul_overflow(first.n, first.matrices, &all) && takes_batch(all, contract.batch)) {
    checked.first.n = all;
    checked.matrices = all == 0 ? 0 : 1;
    return true;
  }
  if (!takes_batch(first.n, contract.batch)) refuse_batch(first.name, first.n, contract.batch);
  if (first.n == 0) checked.matrices = 0;
  return false;
}

void refuse_overlaps(const Region& computed, std::initializer_list<Region> reads) {
  for (const Region& read : reads)
    if (overlap(computed, read)) refuse_overlap(computed.name, read.name);
}

void check_scale(const Operands& operands, const OperandContract& contract) {
  if (contract.epilogue.scale || (operands.alpha == 1 && operands.beta == 0)) return;
  refuse(operands.alpha != 1 ? "alpha" : "beta",
         "the kernel was compiled without it; epilogue scale would work");
}

/// What a product's x and y are of.
struct Sides {
  Side from;
  Side to;
  /// Where y is the gradient of an LSTM's cell, it has these for each gate. Where groups of features are
  /// normalised, they are those of one group.
  Side sums;
};
Sides sides_of(const OperandContract& contract, const ImageExtents& images = {}) {
  const Side inputs = inputs_of(contract, images);
  const Side outputs = outputs_of(contract, images);
  if (is_forward(contract)) {
    const Side of_end{features_of_end(contract), outputs.extents};
    return {inputs, of_end, of_end};
  }
  Side computed = of_gates(inputs, contract);
  computed.features *= contract.normalised_groups();
  return {of_gates(outputs, contract), computed, inputs};
}

/// The activations of a product: x is read, y is computed. One that the kernel does not take has no view.
struct ProductActivations {
  Activation2D x;
  Activation2D y;
  Activation2D residual;
  Activation2D z;
  Activation2D ends[EndMatrices::kMost];  ///< in the order of EndMatrices
  ImageExtents images;                    ///< of a convolution
};

ProductActivations check_activations(const Operands& operands, const OperandContract& contract,
                                     std::int32_t device) {
  const OperandPlaces places = places_of(contract.operation);
  const TensorView& from = operands.*places.from;
  const TensorView& to = operands.*places.to;
  if (from.rank == 0) refuse_missing(places.from_name, contract);
  if (to.rank == 0) refuse_missing(places.to_name, contract);
  const auto check = [&](std::string_view name, const TensorView& view, DType type, const Side& side) {
    return check_activation(name, view, type, side, contract.alignment, contract, device);
  };
  ProductActivations checked;
  if (contract.convolution.present())
    checked.images = contract.operation == Operation::forward
                         ? image_extents(places.from_name, from, contract)
                         : image_extents(places.to_name, to, contract);
  const Sides sides = sides_of(contract, checked.images);
  checked.x = check(places.from_name, from, contract.dtype, sides.from);
  checked.y = check(places.to_name, to, contract.out_dtype, sides.to);
  if (contract.epilogue.residual)
    checked.residual = check("residual", operands.residual, contract.out_dtype, sides.sums);
  if (contract.derivative != Activation::none) checked.z = check("z", operands.z, contract.dtype, sides.from);
  const EndMatrices matrices(contract);
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const EndMatrix& matrix = matrices[i];
    const std::int64_t alignment = matrix.row == RowOf::statistics ? 0 : contract.alignment;
    checked.ends[i] =
        check_activation(matrix.name, operands.*matrix.operand, type_of(matrix.row, contract),
                         {width_of(matrix.row, contract), sides.sums.extents}, alignment, contract, device);
  }
  return checked;
}

/// One for each block of the layout.
std::int64_t gates_of(const OperandContract& contract) {
  return layout_blocks(contract.convolution, contract.blocks);
}

/// What a product reads besides activations; what the kernel does not take is empty.
struct ProductParameters {
  Region w, v;
  Region bias, v_bias;
  Region gates;
  Region edge_gain, edge_bias;
  Region row_scale, v_row_scale;
  Region gain;
  Region dnorm;  ///< computed
};

ProductParameters check_parameters(const Operands& operands, const OperandContract& contract,
                                   std::int32_t device) {
  const Epilogue& ends = contract.epilogue;
  const std::int64_t features = sides_of(contract).to.features;
  const auto vector = [&](std::string_view name, const TensorView& view) {
    return check_dense(name, view, contract.out_dtype, {features}, contract, device);
  };
  ProductParameters checked;
  checked.w = check_weight("w", operands.w, contract.dtype, contract, device);
  if (ends.glu) checked.v = check_weight("v", operands.v, contract.dtype, contract, device);
  if (ends.layer_norm) {
    const std::int64_t of_sums = width_of(RowOf::sums, contract);
    const auto of_norm = [&](std::string_view name, const TensorView& view) {
      return check_dense(name, view, contract.out_dtype, {of_sums}, contract, device);
    };
    checked.gain = of_norm("gain", operands.gain);
    checked.bias = of_norm("bias", operands.bias);
    if (is_grad_input(contract))
      checked.dnorm = check_dense(
          "dnorm", operands.dnorm, contract.sum_type(),
          {operands.dnorm.rank == 2 ? std::max<std::int64_t>(operands.dnorm.shape[0], 1) : 1, 2 * of_sums},
          contract, device, ": a row for each part, of which there is one or more");
  }
  if (ends.bias) checked.bias = vector("bias", operands.bias);
  if (ends.bias && ends.glu) checked.v_bias = vector("v_bias", operands.v_bias);
  if (contract.gates)
    checked.gates =
        check_dense("gates", operands.gates, contract.sum_type(), {gates_of(contract)}, contract, device);
  const auto edges = [&](std::string_view name, const TensorView& view) {
    return check_dense(name, view, contract.sum_type(), {contract.edge_situations, features}, contract,
                       device, ": a row for each edge situation");
  };
  if (ends.edge_bias) checked.edge_gain = edges("edge_gain", operands.edge_gain);
  if (ends.edge_bias) checked.edge_bias = edges("edge_bias", operands.edge_bias);
  const auto scales = [&](std::string_view name, const TensorView& view) {
    return check_dense(name, view, DType::f32, {(features + contract.block.out - 1) / contract.block.out},
                       contract, device, ": one for each block row");
  };
  if (ends.row_scale) checked.row_scale = scales("row_scale", operands.row_scale);
  if (ends.row_scale && ends.glu) checked.v_row_scale = scales("v_row_scale", operands.v_row_scale);
  return checked;
}

/// An output may overlap nothing that is read, except a residual in the same place.
void refuse_overlaps(const ProductActivations& activations, const ProductParameters& reads,
                     const OperandContract& contract) {
  const auto& [x, y, residual, z, ends, images] = activations;
  const bool feature_major = contract.feature_major();
  const std::int64_t from = sides_of(contract).from.features;
  const std::int64_t to = sides_of(contract).to.features;
  if (!y.apart(to, feature_major)) refuse_itself(y.name);
  const Region computed = y.region(to, feature_major);
  refuse_overlaps(computed,
                  {x.region(from, feature_major), reads.w, reads.v, reads.bias, reads.v_bias, reads.gates,
                   reads.edge_gain, reads.edge_bias, reads.row_scale, reads.v_row_scale, reads.gain});
  if (z.view != nullptr) refuse_overlaps(computed, {z.region(from, feature_major)});
  if (residual.view == nullptr) return;
  // In place is safe: the thread that writes an element has read it just before.
  const bool one_row = y.n == 1 && y.positions == 1 && y.matrices == 1 && !feature_major;
  const bool in_place = residual.view->data == y.view->data &&
                        (one_row || (residual.stride == y.stride && residual.matrix_bytes == y.matrix_bytes));
  if (!in_place)
    refuse_overlaps(computed, {residual.region(sides_of(contract).sums.features, feature_major)});
}

/// Outputs of an LSTM's cell and of layer normalisation: what they compute besides y is apart from all else.
void refuse_overlaps_of_ends(const ProductActivations& activations, const ProductParameters& reads,
                             const Operands& operands, const OperandContract& contract) {
  const EndMatrices matrices(contract);
  const bool feature_major = contract.feature_major();
  const Sides sides = sides_of(contract);
  const auto region = [&](std::size_t i) {
    return activations.ends[i].region(width_of(matrices[i].row, contract), feature_major);
  };
  const Region y = activations.y.region(sides.to.features, feature_major);
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const Region own = region(i);
    if (!matrices[i].computed(contract)) {
      refuse_overlaps(y, {own});
      refuse_overlaps(reads.dnorm, {own});
      continue;
    }
    if (overlap(reads.dnorm, own)) refuse_shared(reads.dnorm.name, own.name);
    if (overlap(own, y)) refuse_shared(own.name, y.name);
    refuse_overlaps(own, {activations.x.region(sides.from.features, feature_major), reads.w, reads.gain,
                          reads.bias, reads.gates});
    if (activations.residual.view != nullptr)
      refuse_overlaps(own, {activations.residual.region(sides.sums.features, feature_major)});
    for (std::size_t other = 0; other < matrices.size(); ++other) {
      if (other == i) continue;
      // In place is safe: the thread that writes an element has read it just before.
      const bool in_place =
          matrices[other].operand == matrices[i].in_place &&
          (operands.*matrices[other].operand).data == (operands.*matrices[i].operand).data &&
          activations.ends[other].joined_stride == activations.ends[i].joined_stride;
      if (in_place || !overlap(own, region(other))) continue;
      if (matrices[other].computed(contract)) refuse_shared(own.name, matrices[other].name);
      refuse_overlap(own.name, matrices[other].name);
    }
  }
  if (overlap(reads.dnorm, y)) refuse_shared(reads.dnorm.name, y.name);
  refuse_overlaps(reads.dnorm, {activations.x.region(sides.from.features, feature_major), reads.w, reads.gain,
                                reads.bias, reads.gates});
  if (activations.residual.view != nullptr)
    refuse_overlaps(reads.dnorm, {activations.residual.region(sides.sums.features, feature_major)});
}

/// What a kernel is told of the images of a launch, where they may have any extents: those of what taps
/// displace first.
void set_images(const ImageExtents& images, const OperandContract& contract, LaunchOperands& launch) {
  const Convolution& convolution = contract.convolution;
  if (!convolution.dynamic) return;
  const bool reads_inputs = contract.operation == Operation::forward ||
                            (contract.operation == Operation::grad_weight && !convolution.transposed);
  const Convolution::Extents& input = reads_inputs ? images.inputs : images.outputs;
  const Convolution::Extents& output = reads_inputs ? images.outputs : images.inputs;
  std::copy(input.begin(), input.end(), launch.images.input);
  std::copy(output.begin(), output.end(), launch.images.output);
  launch.rows_of_one =
      lattice_points(convolution, reads_inputs ? Operation::forward : Operation::grad_input, output);
}

/// `joined`: the matrices of a batch are launched as one.
void set_activations(const ProductActivations& activations, bool joined, CheckedOperands& checked) {
  const auto& [x, y, residual, z, ends, images] = activations;
  LaunchOperands& launch = checked.first;
  launch.x = x.view->data;
  launch.x_stride = x.launch_stride(joined);
  checked.x_step = x.matrix_bytes;
  launch.y = y.view->data;
  launch.y_stride = y.launch_stride(joined);
  checked.y_step = y.matrix_bytes;
  if (residual.view != nullptr) {
    launch.residual = residual.view->data;
    launch.residual_stride = residual.launch_stride(joined);
    checked.residual_step = residual.matrix_bytes;
  }
  if (z.view != nullptr) {
    launch.z = z.view->data;
    launch.z_stride = z.launch_stride(joined);
    checked.z_step = z.matrix_bytes;
  }
}

/// The matrices of an LSTM's cell and of layer normalisation, and the cell's four weights.
void set_ends(const ProductActivations& activations, const Operands& operands,
              const OperandContract& contract, LaunchOperands& launch) {
  const EndMatrices matrices(contract);
  if (matrices.size() == 0) return;
  for (std::size_t i = 0; i < matrices.size(); ++i)
    matrices[i].launched(launch) = {activations.ends[i].view->data, activations.ends[i].launch_stride(true)};
  launch.cell.features = features_of_end(contract);
  const std::int64_t weight = weight_elements(contract) / contract.gates_of_cell();
  if (launch.w != nullptr && contract.gates_of_cell() > 1)
    launch.v =
        static_cast<const std::byte*>(launch.w) + weight * static_cast<std::int64_t>(size_of(contract.dtype));
  if (!normalises(contract)) return;
  LaunchNormalisation& normalisation = launch.normalisation;
  normalisation.y = normalisation.dh = {launch.y, launch.y_stride};
  if (is_forward(contract)) {  // what the product computes
    launch.y = normalisation.sums.data;
    launch.y_stride = normalisation.sums.stride;
  } else {
    normalisation.parts = operands.dnorm.shape[0];
    normalisation.dnorm = {operands.dnorm.data, 2 * width_of(RowOf::sums, contract)};
  }
  normalisation.gain = operands.gain.data;
  normalisation.bias = operands.bias.data;
  normalisation.features = launch.cell.features;
  normalisation.epsilon64 = operands.epsilon;
  normalisation.epsilon = static_cast<float>(operands.epsilon);
}

CheckedOperands check_product(const Operands& operands, const OperandContract& contract,
                              std::int32_t device) {
  const ProductActivations activations = check_activations(operands, contract, device);
  const auto taken = [](const Activation2D& one) { return one.view != nullptr ? &one : nullptr; };
  CheckedOperands checked;
  const auto& ends = activations.ends;
  static_assert(EndMatrices::kMost == 7);
  const bool joined = join_matrices(
      {&activations.x, &activations.y, taken(activations.residual), taken(activations.z), taken(ends[0]),
       taken(ends[1]), taken(ends[2]), taken(ends[3]), taken(ends[4]), taken(ends[5]), taken(ends[6])},
      contract, checked);
  if ((has_cell(contract) || normalises(contract)) && !joined && checked.matrices != 0)
    refuse(
        activations.x.name,
        fmt::format("its matrices are not one matrix of a batch that the kernel takes, as those of {} must "
                    "be; a launch for each would work",
                    has_cell(contract) ? "an LSTM's cell" : "a layer normalisation"));
  const ProductParameters parameters = check_parameters(operands, contract, device);
  check_scale(operands, contract);
  check_epsilon(operands, contract);
  if (sides_of(contract).to.features == 0) checked.matrices = 0;
  if (checked.matrices == 0) return checked;
  refuse_overlaps(activations, parameters, contract);
  refuse_overlaps_of_ends(activations, parameters, operands, contract);
  set_activations(activations, joined, checked);
  LaunchOperands& launch = checked.first;
  set_images(activations.images, contract, launch);
  launch.w = operands.w.data;
  launch.v = operands.v.data;
  set_ends(activations, operands, contract, launch);
  launch.bias = operands.bias.data;
  launch.v_bias = operands.v_bias.data;
  launch.gates = operands.gates.data;
  launch.edge_gain = operands.edge_gain.data;
  launch.edge_bias = operands.edge_bias.data;
  launch.row_scale = operands.row_scale.data;
  launch.v_row_scale = operands.v_row_scale.data;
  launch.set_scale(operands.alpha, operands.beta);
  return checked;
}

/// The pairs of grad_weight: matrices of a batch of them are pairs of their own, unless they are one matrix.
class PairList {
 public:
  PairList(const OperandContract& contract, std::int32_t device) : contract_(contract), device_(device) {}

  void add(const ActivationPair& pair, const Region (&computed)[3]) {
    const bool derivative = contract_.derivative != Activation::none;
    const auto check = [&](std::string_view name, const TensorView& view, const Side& side) {
      return check_activation(name, view, contract_.dtype, side, contract_.alignment, contract_, device_);
    };
    ImageExtents images;
    if (contract_.convolution.present()) images = image_extents("x", pair.x, contract_);
    const Side outputs = of_gates(outputs_of(contract_, images), contract_);
    const Activation2D x = check("x", pair.x, inputs_of(contract_, images));
    const Activation2D dy = check("dy", pair.dy, outputs);
    Activation2D z;
    if (derivative) z = check("z", pair.z, outputs);
    CheckedOperands matrices;
    const bool joined = join_matrices({&x, &dy, derivative ? &z : nullptr}, contract_, matrices);
    const std::int64_t x_stride = x.launch_stride(joined);
    const std::int64_t dy_stride = dy.launch_stride(joined);
    const std::int64_t z_stride = z.launch_stride(joined);
    LaunchOperands& launch = checked_.first;
    if (count_ == 0) {
      launch.n = matrices.first.n;
      launch.x_stride = x_stride;
      launch.y_stride = dy_stride;
      launch.z_stride = z_stride;
      set_images(images, contract_, launch);
    }
    if (matrices.first.n != launch.n)
      refuse("pairs", fmt::format("one has a batch of {}, the first of {}", matrices.first.n, launch.n));
    if (x_stride != launch.x_stride || dy_stride != launch.y_stride || z_stride != launch.z_stride)
      refuse("pairs", "all must have the strides of the first");
    const bool feature_major = contract_.feature_major();
    for (const Region& region : computed) {
      refuse_overlaps(region, {x.region(contract_.in_features, feature_major),
                               dy.region(outputs.features, feature_major)});
      if (derivative) refuse_overlaps(region, {z.region(outputs.features, feature_major)});
    }
    if (contract_.convolution.present() && count_ != 0)
      refuse("pairs",
             "a convolution takes one, of any number of images; a launch for each, all but the first with "
             "beta = 1, would work");
    for (std::int64_t i = 0; i < matrices.matrices; ++i) {
      if (count_ == static_cast<std::int64_t>(kMostPairs))
        refuse("pairs", fmt::format("more than {} of them, batches of matrices counted one by one; a launch "
                                    "for each {}, all but the first with beta = 1, would work",
                                    kMostPairs, kMostPairs));
      launch.pairs.pair[count_++] = {moved(pair.x.data, i * x.matrix_bytes),
                                     moved(pair.dy.data, i * dy.matrix_bytes),
                                     derivative ? moved(pair.z.data, i * z.matrix_bytes) : nullptr};
    }
  }
  [[nodiscard]] CheckedOperands finish() {
    checked_.first.pairs.count = static_cast<std::int32_t>(count_);
    if (count_ == 0) checked_.first.n = 0;  // no matrices: as one without batch rows, whose gradient is zeros
    return checked_;
  }

 private:
  static const void* moved(const void* address, std::int64_t bytes) {
    return static_cast<const std::byte*>(address) + bytes;
  }
  const OperandContract& contract_;
  std::int32_t device_;
  CheckedOperands checked_;
  std::int64_t count_ = 0;
};

CheckedOperands check_sddmm(const Operands& operands, const OperandContract& contract, std::int32_t device) {
  Region computed[3];
  Region w;
  computed[0] = check_weight("dw", operands.dw, contract.out_dtype, contract, device);
  if (contract.bias_gradient)
    computed[1] = check_dense("dbias", operands.dbias, contract.sum_type(),
                              {of_gates(outputs_of(contract, {}), contract).features}, contract, device);
  if (contract.gate_gradient) {
    computed[2] =
        check_dense("dgates", operands.dgates, contract.sum_type(), {gates_of(contract)}, contract, device);
    w = check_weight("w", operands.w, contract.dtype, contract, device);
  }
  Region gates;
  if (contract.gates)
    gates = check_dense("gates", operands.gates, contract.sum_type(), {gates_of(contract)}, contract, device);
  for (const Region& region : computed) refuse_overlaps(region, {w, gates});
  for (const auto& [one, other] : {std::pair{0, 1}, {0, 2}, {1, 2}})
    if (overlap(computed[one], computed[other])) refuse_shared(computed[one].name, computed[other].name);
  check_scale(operands, contract);

  PairList pairs(contract, device);
  if (operands.pairs.empty()) {
    if (operands.x.rank == 0) refuse_missing("x", contract);
    if (operands.dy.rank == 0) refuse_missing("dy", contract);
    pairs.add({operands.x, operands.dy, operands.z}, computed);
  }
  for (const ActivationPair& pair : operands.pairs) pairs.add(pair, computed);
  CheckedOperands checked = pairs.finish();
  LaunchOperands& launch = checked.first;
  launch.y = operands.dw.data;
  launch.w = operands.w.data;
  launch.gates = operands.gates.data;
  launch.dbias = operands.dbias.data;
  launch.dgates = operands.dgates.data;
  launch.set_scale(operands.alpha, operands.beta);
  // Without batch rows the gradients are zeros, which are written.
  checked.matrices = contract.blocks == 0 && !contract.bias_gradient ? 0 : 1;
  return checked;
}

}  // namespace

CheckedOperands check_operands(const Operands& operands, const OperandContract& contract,
                               std::int32_t device) {
  if (operands.threads < 0)
    refuse("threads",
           fmt::format("{} threads: 1 or more, or 0 for the usual number, would work", operands.threads));
  switch (kind_of(contract.operation)) {
    case ProblemKind::spmm:
      return check_product(operands, contract, device);
    case ProblemKind::sddmm:
      return check_sddmm(operands, contract, device);
  }
  throw Error(ErrorKind::internal, "operands of an unknown kind of problem");
}

}  // namespace sparsekiln
