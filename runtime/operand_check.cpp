#include "runtime/operand_check.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/correlation.h"
#include "compiler/problem_kind.h"
#include "runtime/operand_forms.h"
#include "runtime/operands.h"
#include "runtime/weight_check.h"

namespace sparsekiln {
namespace {

[[noreturn, gnu::cold]] void refuse_images_beside(const Activation2D& is, const Activation2D& first) {
  if (is.images) refuse(is.name, fmt::format("it has {} images, but {} has {}", is.n, first.name, first.n));
  refuse(is.name,
         fmt::format("its {} rows are {} images of {} positions, but {} has {} images, for which it "
                     "takes {} rows",
                     is.batch_rows(), is.n, is.positions, first.name, first.n, first.n * is.positions));
}

/// True where activations are one matrix of a batch that the kernel takes, else they are a batch of such
/// matrices.
bool join_matrices(std::span<const Activation2D> activations, const OperandContract& contract,
                   CheckedOperands& checked) {
  const Activation2D& first = activations.front();
  bool join = true;
  for (const Activation2D& other : activations) {
    if (contract.convolution.present() && other.n != first.n) refuse_images_beside(other, first);
    if (other.n != first.n || other.matrices != first.matrices)
      refuse(other.name, fmt::format("{} matrices of {} batch rows, but {} has {} of {}", other.matrices,
                                     other.n, first.name, first.matrices, first.n));
    join = join && other.joins;
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

void check_scale(const Operands& operands, const OperandContract& contract) {
  if (contract.epilogue.scale || (operands.alpha == 1 && operands.beta == 0)) return;
  refuse(operands.alpha != 1 ? "alpha" : "beta",
         "the kernel was compiled without it; epilogue scale would work");
}

void check_epsilon(const Operands& operands, const OperandContract& contract) {
  if (!normalises(contract)) {
    if (operands.epsilon != Operands{}.epsilon)
      refuse("epsilon", "the kernel does not take it; one with epilogue layer_norm does");
    return;
  }
  if (operands.epsilon >= 0) return;
  refuse("epsilon", fmt::format("{} is what is added to a variance; 0 or more would work", operands.epsilon));
}

/// The memory of an operand that was checked.
struct CheckedOperand {
  const OperandRow* row = nullptr;
  const TensorView* view = nullptr;
  bool computed = false;
  const Activation2D* activation = nullptr;  ///< where it is one
  Region region;
};
using CheckedList = std::array<CheckedOperand, TakenOperands::kMost>;

/// Whether `own` may be where `other` is: the thread that writes an element has read it just before.
bool in_place(const CheckedOperand& own, const CheckedOperand& other, const OperandContract& contract) {
  if (own.row->in_place != other.row->view || own.view->data != other.view->data) return false;
  const Activation2D& to = *own.activation;
  const Activation2D& from = *other.activation;
  const bool one_row = to.n == 1 && to.positions == 1 && to.matrices == 1 && !contract.feature_major();
  return one_row || (from.stride == to.stride && from.matrix_bytes == to.matrix_bytes);
}

/// An operand that is computed may overlap no other.
void refuse_overlaps(std::span<const CheckedOperand> all, const OperandContract& contract) {
  for (const CheckedOperand& own : all) {
    if (!own.computed) continue;
    if (own.activation != nullptr &&
        !own.activation->apart(count(own.row->features, contract), contract.feature_major()))
      refuse_itself(own.row->name);
    for (const CheckedOperand& other : all) {
      if (&other == &own || !overlap(own.region, other.region) || in_place(own, other, contract)) continue;
      if (other.computed && own.row->is_main()) refuse_shared(other.row->name, own.row->name);
      if (other.computed) refuse_shared(own.row->name, other.row->name);
      refuse_overlap(own.row->name, other.row->name);
    }
  }
}

template <class T>
void put(LaunchOperands& launch, std::uint16_t offset, const T& value) {
  std::memcpy(reinterpret_cast<std::byte*>(&launch) + offset, &value, sizeof(value));
}

/// Tells the launch where an operand is. `joined`: the matrices of a batch are launched as one.
void place(const CheckedOperand& operand, bool joined, CheckedOperands& checked) {
  const LaunchPlace& at = operand.row->place;
  put(checked.first, at.address, operand.view->data);
  if (operand.activation != nullptr) {
    put(checked.first, at.stride, operand.activation->launch_stride(joined));
    if (!joined) checked.steps[checked.moving++] = {at.address, operand.activation->matrix_bytes};
  } else if (operand.row->form == OperandForm::dense && at.stride != LaunchPlace::kNone) {
    put(checked.first, at.stride, operand.view->shape[operand.view->rank - 1]);
  }
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

/// What an LSTM's cell and layer normalisation take besides matrices.
void set_ends(const Operands& operands, const OperandContract& contract, LaunchOperands& launch) {
  if (!has_cell(contract) && !normalises(contract)) return;
  launch.cell.features = count(Features::outputs, contract);
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
  }
  normalisation.bias = operands.bias.data;
  normalisation.features = launch.cell.features;
  normalisation.epsilon64 = operands.epsilon;
  normalisation.epsilon = static_cast<float>(operands.epsilon);
}

CheckedOperands check_product(const Operands& operands, const OperandContract& contract,
                              const TakenOperands& taken, std::int32_t device) {
  const OperandPlaces places = places_of(contract.operation);
  const TensorView& from = operands.*places.from;
  const TensorView& to = operands.*places.to;
  if (from.rank == 0) refuse_missing(places.from_name, contract);
  if (to.rank == 0) refuse_missing(places.to_name, contract);
  ImageExtents images;
  if (contract.convolution.present())
    images = is_forward(contract) ? image_extents(places.from_name, from, contract)
                                  : image_extents(places.to_name, to, contract);
  CheckedList list;
  std::size_t size = 0;
  std::array<Activation2D, TakenOperands::kMostActivations> activations;
  std::size_t activation_count = 0;
  const auto add = [&](const OperandRow& row, const Activation2D* activation, const Region& region) {
    list[size++] = {&row, &(operands.*row.view), row.computed(contract), activation, region};
  };
  for (const OperandRow* row : taken) {
    if (row->form != OperandForm::activation) continue;
    Activation2D& activation = activations[activation_count++];
    activation = check_activation(*row, operands.*row->view, images, contract, device);
    add(*row, &activation, activation.region(count(row->features, contract), contract.feature_major()));
  }
  CheckedOperands checked;
  const bool joined = join_matrices(std::span(activations).first(activation_count), contract, checked);
  if ((has_cell(contract) || normalises(contract)) && !joined && checked.matrices != 0)
    refuse(
        places.from_name,
        fmt::format("its matrices are not one matrix of a batch that the kernel takes, as those of {} must "
                    "be; a launch for each would work",
                    has_cell(contract) ? "an LSTM's cell" : "a layer normalisation"));
  for (const OperandRow* row : taken)
    if (row->form != OperandForm::activation)
      add(*row, nullptr,
          (row->form == OperandForm::weight ? check_weight : check_dense)(*row, operands.*row->view, contract,
                                                                          device));
  check_scale(operands, contract);
  check_epsilon(operands, contract);
  if (count(Features::result, contract) == 0) checked.matrices = 0;
  if (checked.matrices == 0) return checked;
  const std::span<const CheckedOperand> all = std::span(list).first(size);
  refuse_overlaps(all, contract);
  for (const CheckedOperand& operand : all) place(operand, joined, checked);
  set_images(images, contract, checked.first);
  set_ends(operands, contract, checked.first);
  checked.first.set_scale(operands.alpha, operands.beta);
  return checked;
}

/// The pairs of grad_weight: matrices of a batch of them are pairs of their own, unless they are one matrix.
class PairList {
 public:
  /// `computed`: what no pair may overlap.
  PairList(const OperandContract& contract, std::int32_t device, std::span<const CheckedOperand> computed)
      : contract_(contract), device_(device), computed_(computed) {}

  void add(const ActivationPair& pair) {
    const bool derivative = contract_.derivative != Activation::none;
    ImageExtents images;
    if (contract_.convolution.present()) images = image_extents("x", pair.x, contract_);
    const auto check = [&](const OperandRow& row, const TensorView& view) {
      const Activation2D checked = check_activation(row, view, images, contract_, device_);
      refuse_overlaps_of(row, checked);
      return checked;
    };
    static const OperandRow &row_x = operand_row("x"), &row_dy = operand_row("dy"), &row_z = operand_row("z");
    const std::array<Activation2D, 3> all{check(row_x, pair.x), check(row_dy, pair.dy),
                                          derivative ? check(row_z, pair.z) : Activation2D{}};
    const auto& [x, dy, z] = all;
    CheckedOperands matrices;
    const bool joined = join_matrices(std::span(all).first(derivative ? 3 : 2), contract_, matrices);
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
  void refuse_overlaps_of(const OperandRow& row, const Activation2D& read) const {
    const Region region = read.region(count(row.features, contract_), contract_.feature_major());
    for (const CheckedOperand& operand : computed_)
      if (operand.computed && overlap(operand.region, region)) refuse_overlap(operand.row->name, region.name);
  }

  const OperandContract& contract_;
  std::int32_t device_;
  std::span<const CheckedOperand> computed_;
  CheckedOperands checked_;
  std::int64_t count_ = 0;
};

CheckedOperands check_sddmm(const Operands& operands, const OperandContract& contract,
                            const TakenOperands& taken, std::int32_t device) {
  CheckedList list;
  std::size_t size = 0;
  for (const OperandRow* row : taken) {
    if (row->view == &Operands::x || row->view == &Operands::dy || row->view == &Operands::z)
      continue;  // in pairs
    if (row->form == OperandForm::activation)
      throw Error(ErrorKind::internal, fmt::format("operand {} of a gradient of the weight", row->name));
    const TensorView& view = operands.*row->view;
    list[size++] = {
        row, &view, row->computed(contract), nullptr,
        (row->form == OperandForm::weight ? check_weight : check_dense)(*row, view, contract, device)};
  }
  const std::span<const CheckedOperand> all = std::span(list).first(size);
  refuse_overlaps(all, contract);
  check_scale(operands, contract);

  PairList pairs(contract, device, all);
  if (operands.pairs.empty()) {
    if (operands.x.rank == 0) refuse_missing("x", contract);
    if (operands.dy.rank == 0) refuse_missing("dy", contract);
    pairs.add({operands.x, operands.dy, operands.z});
  }
  for (const ActivationPair& pair : operands.pairs) pairs.add(pair);
  CheckedOperands checked = pairs.finish();
  for (const CheckedOperand& operand : all) place(operand, true, checked);
  checked.first.set_scale(operands.alpha, operands.beta);
  // Without batch rows the gradients are zeros, which are written.
  checked.matrices = contract.blocks == 0 && !contract.bias_gradient ? 0 : 1;
  return checked;
}

}  // namespace

CheckedOperands check_operands(const Operands& operands, const OperandContract& contract,
                               const TakenOperands& taken, std::int32_t device) {
  if (operands.threads < 0)
    refuse("threads",
           fmt::format("{} threads: 1 or more, or 0 for the usual number, would work", operands.threads));
  switch (kind_of(contract.operation)) {
    case ProblemKind::spmm:
      return check_product(operands, contract, taken, device);
    case ProblemKind::sddmm:
      return check_sddmm(operands, contract, taken, device);
  }
  throw Error(ErrorKind::internal, "operands of an unknown kind of problem");
}

}  // namespace sparsekiln
