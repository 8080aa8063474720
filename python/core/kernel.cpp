#include "python/core/kernel.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <sparsekiln/convolution.h>

#include "python/core/arguments.h"
#include "python/core/element_types.h"
#include "python/core/errors.h"
#include "python/core/tensors.h"

namespace sparsekiln::python {
namespace {

/// An operand of a call, by its name in sk_operands.
struct Operand {
  std::string_view name;
  const DLTensor* sk_operands::* place;
  bool written;
  std::string_view written_by = "";  ///< the only operation that writes it; empty: all that take it
};
constexpr std::array kOperands = {
    Operand{"x", &sk_operands::x, false},
    Operand{"w", &sk_operands::w, false},
    Operand{"y", &sk_operands::y, true},
    Operand{"dy", &sk_operands::dy, false},
    Operand{"dx", &sk_operands::dx, true},
    Operand{"dw", &sk_operands::dw, true},
    Operand{"v", &sk_operands::v, false},
    Operand{"bias", &sk_operands::bias, false},
    Operand{"v_bias", &sk_operands::v_bias, false},
    Operand{"residual", &sk_operands::residual, false},
    Operand{"z", &sk_operands::z, false},
    Operand{"gates", &sk_operands::gates, false},
    Operand{"dbias", &sk_operands::dbias, true},
    Operand{"dgates", &sk_operands::dgates, true},
    Operand{"edge_gain", &sk_operands::edge_gain, false},
    Operand{"edge_bias", &sk_operands::edge_bias, false},
    Operand{"row_scale", &sk_operands::row_scale, false},
    Operand{"v_row_scale", &sk_operands::v_row_scale, false},
    Operand{"projection", &sk_operands::projection, false},
    Operand{"c_before", &sk_operands::c_before, false},
    Operand{"c", &sk_operands::c, true, "forward"},
    Operand{"activations", &sk_operands::activations, true, "forward"},
    Operand{"dc", &sk_operands::dc, false},
    Operand{"dc_before", &sk_operands::dc_before, true},
    Operand{"gain", &sk_operands::gain, false},
    Operand{"multiplier", &sk_operands::multiplier, false},
    Operand{"addend", &sk_operands::addend, false},
    Operand{"sums", &sk_operands::sums, true, "forward"},
    Operand{"statistics", &sk_operands::statistics, true, "forward"},
    Operand{"dmultiplier", &sk_operands::dmultiplier, true},
    Operand{"daddend", &sk_operands::daddend, true},
    Operand{"dnorm", &sk_operands::dnorm, true},
};
constexpr std::size_t kCount = kOperands.size();
static_assert(kCount <= 32, "a bit for each in what taken_by gives");

constexpr std::size_t index_of(std::string_view name) {
  for (std::size_t i = 0; i < kCount; ++i)
    if (kOperands[i].name == name) return i;
  return kCount;
}

[[noreturn]] void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

/// Whose extent the main output has: features of y, those of dx, or blocks of the weight.
enum class Extent : std::uint8_t { out_features, in_features, blocks };

/// How a kernel of an operation is called.
struct Calling {
  std::string_view operation;
  std::array<std::string_view, 3> positions;  ///< its positional arguments, the main output last
  Extent output;
};
constexpr std::array kCallings = {
    Calling{"forward", {"x", "w", "y"}, Extent::out_features},
    Calling{"grad_input", {"dy", "w", "dx"}, Extent::in_features},
    Calling{"grad_weight", {"x", "dy", "dw"}, Extent::blocks},
};
const Calling& calling_of(std::string_view operation) {
  for (const Calling& calling : kCallings)
    if (calling.operation == operation) return calling;
  raise(PyExc_NotImplementedError, "kernels of operation '" + std::string(operation) +
                                       "' cannot be called by this version of the Python package; forward, "
                                       "grad_input and grad_weight would work");
}

/// What the positional arguments of an operation are.
std::array<std::size_t, 3> positions(std::string_view operation) {
  const auto& [first, second, output] = calling_of(operation).positions;
  return {index_of(first), index_of(second), index_of(output)};
}

bool has_part(std::string_view epilogue, std::string_view part) {
  for (std::size_t at = epilogue.find(part); at != std::string_view::npos; at = epilogue.find(part, at + 1)) {
    const std::size_t behind = at + part.size();
    if ((at == 0 || epilogue[at - 1] == '+') && (behind == epilogue.size() || epilogue[behind] == '+'))
      return true;
  }
  return false;
}

/// The operands that a kernel uses, one bit for each.
std::uint32_t taken_by(const sk_kernel_view& kernel) {
  std::uint32_t taken = 0;
  const auto take = [&](std::string_view name, bool where = true) {
    if (where) taken |= std::uint32_t{1} << index_of(name);
  };
  const std::string_view operation = kernel.operation;
  const std::string_view epilogue = kernel.epilogue;
  for (const std::size_t operand : positions(operation)) taken |= std::uint32_t{1} << operand;
  const bool glu = has_part(epilogue, "glu");
  take("v", glu);
  const bool normalises = has_part(epilogue, "layer_norm");
  take("bias", has_part(epilogue, "bias") || normalises);
  take("v_bias", glu && has_part(epilogue, "bias"));
  take("residual", has_part(epilogue, "residual"));
  take("edge_gain", has_part(epilogue, "edge_bias"));
  take("edge_bias", has_part(epilogue, "edge_bias"));
  take("row_scale", has_part(epilogue, "row_scale"));
  take("v_row_scale", glu && has_part(epilogue, "row_scale"));
  take("z", std::string_view(kernel.derivative) != "none");
  if (has_part(epilogue, "lstm") && operation != "grad_weight") {
    const bool forward = operation == "forward";
    take("projection", forward && !normalises);
    take("activations", !normalises && (!forward || has_part(epilogue, "keep")));
    take("c_before");
    take("c");
    take("dc", !forward);
    take("dc_before", !forward);
  }
  if (normalises) {
    const bool gradient = operation != "forward";
    const bool multiplies = has_part(epilogue, "multiply");
    const bool adds = has_part(epilogue, "add");
    for (const std::string_view name : {"gain", "sums", "statistics"}) take(name);
    take("multiplier", multiplies);
    take("addend", adds);
    take("dmultiplier", gradient && multiplies && !has_part(epilogue, "lstm"));
    take("daddend", gradient && adds);
    take("dnorm", gradient);
  }
  take("gates", kernel.gates != 0);
  take("dbias", kernel.bias_gradient != 0);
  take("dgates", kernel.gate_gradient != 0);
  take("w", kernel.gate_gradient != 0);
  return taken;
}

/// The DLPack type of a name that a kernel has.
DLDataType type_of(std::string_view dtype) {
  const sk_element_type* type = element_type_named(dtype);
  return {type->dlpack_code, type->dlpack_bits, 1};
}

/// What a caller gave, and what is made for it.
class Call {
 public:
  Call(const sk_kernel_view& kernel, const Convolution& convolution, std::uint32_t taken,
       const nb::args& positional, const nb::kwargs& named)
      : kernel_(kernel), convolution_(convolution), taken_(taken) {
    const auto places = positions(kernel.operation);
    if (positional.size() > places.size())
      raise(PyExc_TypeError, std::string(kernel.operation) + " takes three operands by their places, not " +
                                 std::to_string(positional.size()) + "; the others by their names");
    for (std::size_t i = 0; i < positional.size(); ++i) give(places[i], positional[i]);
    for (const auto [key, value] : named) give(name_of(key), value);
    main_ = places[2];
    first_ = places[0];
  }

  /// Borrows what was given and makes missing outputs; to be called with the GIL.
  const sk_operands& prepare() {
    for (std::size_t i = 0; i < kCount; ++i)
      if (objects_[i].is_valid()) take(i);
    if (!tensors_[first_])
      raise(PyExc_TypeError,
            std::string(kernel_.operation) + " needs operand " + std::string(kOperands[first_].name));
    const Tensor& like = *tensors_[first_];
    if (!objects_[main_].is_valid()) {
      if (beta_ != 0)
        raise(PyExc_ValueError, "beta is not 0, and there is no " + std::string(kOperands[main_].name) +
                                    " to be multiplied by it");
      make(main_, like);
    }
    if (kernel_.bias_gradient != 0) make_sums("dbias", gates_of_cell() * kernel_.out_features, like);
    for (const std::string_view name : computed_at_end()) make_of_end(name, like);
    if (kernel_.gate_gradient != 0) make_sums("dgates", gate_count(), like);
    if (!stream_given_) operands_.stream = like.current_stream();
    if (workspace_) take_workspace(like);
    operands_.alpha64 = &alpha_;
    operands_.beta64 = &beta_;
    return operands_;
  }

  /// Marks the arrays that were written to as changed.
  void was_written() const {
    for (std::size_t i = 0; i < kCount; ++i)
      if (is_written(i) && given_[i]) tensors_[i]->was_written();
  }

  [[nodiscard]] nb::object result() const {
    nb::list all;
    all.append(objects_[main_]);
    for (const std::string_view name : computed_at_end()) all.append(objects_[index_of(name)]);
    if (kernel_.bias_gradient != 0) all.append(objects_[index_of("dbias")]);
    if (kernel_.gate_gradient != 0) all.append(objects_[index_of("dgates")]);
    return nb::len(all) == 1 ? nb::borrow(objects_[main_]) : nb::object(nb::tuple(all));
  }

 private:
  static std::string_view name_of(nb::handle key) {
    std::string_view name;
    if (!nb::try_cast(key, name))  // a surrogate
      raise(PyExc_TypeError, "there is no operand " + nb::cast<std::string>(nb::repr(key)));
    return name;
  }

  void give(std::size_t operand, nb::handle value) {
    if (!value.is_none() && (taken_ >> operand & 1) == 0)
      raise(PyExc_TypeError, "this kernel (" + std::string(kernel_.operation) + ") does not take operand " +
                                 std::string(kOperands[operand].name) + "; it was compiled without");
    if (objects_[operand].is_valid())
      raise(PyExc_TypeError, "operand " + std::string(kOperands[operand].name) + " is given twice");
    if (value.is_none()) return;
    objects_[operand] = nb::borrow(value);
    given_[operand] = true;
  }

  void give(std::string_view name, nb::handle value) {
    if (const std::size_t operand = index_of(name); operand < kCount) {
      give(operand, value);
    } else if (name == "alpha") {
      alpha_ = argument<double>("real", name, value);
    } else if (name == "beta") {
      beta_ = argument<double>("real", name, value);
    } else if (name == "epsilon") {
      operands_.epsilon = argument<double>("real", name, value);
    } else if (name == "threads") {
      operands_.threads = argument<std::int32_t>("int32", name, value);
    } else if (name == "workspace") {
      if (!value.is_none()) workspace_.emplace("workspace", value, true);
    } else if (name == "stream") {
      stream_given_ = !value.is_none();
      if (stream_given_)
        operands_.stream = reinterpret_cast<void*>(argument<std::uintptr_t>("unsigned", name, value));
    } else {
      raise(PyExc_TypeError, "there is no operand '" + std::string(name) + "'");
    }
  }

  void take(std::size_t i) {
    const Operand& operand = kOperands[i];
    operands_.*operand.place = &tensors_[i].emplace(operand.name, objects_[i], is_written(i)).get();
  }
  [[nodiscard]] bool is_written(std::size_t i) const {
    const Operand& operand = kOperands[i];
    return operand.written && (operand.written_by.empty() || operand.written_by == kernel_.operation);
  }

  [[nodiscard]] bool cell() const { return has_part(kernel_.epilogue, "lstm"); }
  [[nodiscard]] bool normalises() const { return has_part(kernel_.epilogue, "layer_norm"); }
  [[nodiscard]] bool forward() const { return std::string_view(kernel_.operation) == "forward"; }
  /// Features of dx, or dy of grad_weight, for each of the layer's; and of what is normalised for each of
  /// y's.
  [[nodiscard]] std::int64_t gates_of_cell() const { return cell() ? 4 : 1; }
  /// Features of y, or of one gate of dx.
  [[nodiscard]] std::int64_t features_of_end() const {
    if (!forward()) return kernel_.in_features;
    return normalises() ? kernel_.out_features / gates_of_cell() : kernel_.out_features;
  }
  /// What the cell of an LSTM and layer normalisation compute besides the main output, in the order of the
  /// result. The gradients of gain and bias are added to what the caller has.
  [[nodiscard]] std::vector<std::string_view> computed_at_end() const {
    std::vector<std::string_view> names;
    for (std::size_t i = index_of("projection"); i < index_of("dnorm"); ++i)
      if ((taken_ >> i & 1) != 0 && is_written(i)) names.push_back(kOperands[i].name);
    return names;
  }

  /// One of these, where it was not given.
  void make_of_end(std::string_view name, const Tensor& like) {
    const std::size_t output = index_of(name);
    if (objects_[output].is_valid()) return;
    const bool statistics = name == "statistics";
    const bool state = name == "c" || name == "dc_before";
    const bool all_gates = name == "activations" || name == "sums" || statistics;
    const std::int64_t features = statistics ? 2 : features_of_end();
    const std::string_view type = statistics || state ? element_type_named(kernel_.dtype)->sum_name
                                                      : std::string_view(kernel_.out_dtype);
    objects_[output] = like.empty(
        shape_of_matrix(like.get(), all_gates ? gates_of_cell() * features : features), type_of(type));
    take(output);
  }

  /// [n, features], or feature-major, of the n of the first operand, and a batch of such where that is one.
  [[nodiscard]] std::vector<std::int64_t> shape_of_matrix(const DLTensor& given,
                                                          std::int64_t features) const {
    if (given.ndim != 2 && given.ndim != 3)
      raise(PyExc_ValueError, "operand " + std::string(kOperands[first_].name) + " has " +
                                  std::to_string(given.ndim) + " dimensions; 2 or 3 are taken");
    const bool feature_major = std::string_view(kernel_.activation_order) == "feature-major";
    const std::int64_t n = given.shape[given.ndim - (feature_major ? 1 : 2)];
    std::vector<std::int64_t> shape;
    if (given.ndim == 3) shape.push_back(given.shape[0]);
    shape.push_back(feature_major ? features : n);
    shape.push_back(feature_major ? n : features);
    return shape;
  }

  /// The main output, with the shape that follows from the first operand.
  void make(std::size_t output, const Tensor& like) {
    const DLDataType type = type_of(kernel_.out_dtype);
    const Extent extent = calling_of(kernel_.operation).output;
    if (convolution_.present()) {
      objects_[output] = like.empty(shape_of_images(extent, like.get()), type);
    } else if (extent == Extent::blocks) {
      objects_[output] = like.empty({kernel_.blocks, kernel_.block_out, kernel_.block_in}, type);
    } else {
      const std::int64_t features = extent == Extent::out_features
                                        ? features_of_end()
                                        : gates_of_cell() * std::int64_t{kernel_.in_features};
      objects_[output] = like.empty(shape_of_matrix(like.get(), features), type);
    }
    take(output);
  }

  /// The shape of the main output of a convolution. What the first operand is, the library checks.
  [[nodiscard]] std::vector<std::int64_t> shape_of_images(Extent extent, const DLTensor& given) const {
    const std::int64_t taps = convolution_.taps_of_block();
    if (extent == Extent::blocks && taps == 0) return {kernel_.blocks, kernel_.block_out, kernel_.block_in};
    if (extent == Extent::blocks) return {kernel_.blocks / taps, taps, kernel_.block_out, kernel_.block_in};
    const bool forward = extent == Extent::out_features;
    const std::int64_t features = forward ? kernel_.out_features : kernel_.in_features;
    const bool channels_first = std::string_view(kernel_.activation_order) == "feature-major";
    const std::optional<Convolution> fixed =
        convolution_.dynamic ? of_images(extent, given, channels_first) : convolution_;
    if (!fixed) return {0};  // the launch says what is wrong with what was given
    const Convolution& convolution = *fixed;
    const std::int64_t from = forward ? convolution.input_positions() : convolution.output_positions();
    const std::int64_t to = forward ? convolution.output_positions() : convolution.input_positions();
    if (given.ndim == 2 && !channels_first) return {given.shape[0] / from * to, features};
    std::vector<std::int64_t> shape{given.ndim == 0 ? 0 : given.shape[0]};
    if (channels_first) shape.push_back(features);
    const Convolution::Extents extents = forward ? convolution.output() : convolution.input;
    if (channels_first && given.ndim == 3)
      shape.push_back(to);
    else
      shape.insert(shape.end(), extents.end() - convolution_.dimensions, extents.end());
    if (!channels_first) shape.push_back(features);
    return shape;
  }

  /// The convolution of the inputs that were given, where it takes several; none: it does not take those.
  [[nodiscard]] std::optional<Convolution> of_images(Extent extent, const DLTensor& given,
                                                     bool channels_first) const {
    if (extent != Extent::out_features)
      raise(
          PyExc_ValueError,
          "this kernel takes images of several sizes, and those of dx do not follow from dy; dx= would work");
    Convolution::Extents extents{1, 1, 1};
    const std::int32_t dimensions = convolution_.dimensions;
    for (std::int32_t i = 0; i < dimensions && given.ndim == dimensions + 2; ++i) {
      const auto place = static_cast<std::size_t>(3 - dimensions + i);
      const std::int64_t most = std::int64_t{convolution_.input[place]} + 1;  // which it does not take
      extents[place] = static_cast<std::int32_t>(std::min(given.shape[(channels_first ? 2 : 1) + i], most));
    }
    if (!convolution_.takes(extents)) return std::nullopt;
    return convolution_.at(extents);
  }

  /// Checks that it is on the device of the operands. Its size, which the library checks, is the number of
  /// contiguous elements at its beginning: all of them if it is dense.
  void take_workspace(const Tensor& like) {
    const DLTensor& space = workspace_->get();
    const DLDevice& device = like.get().device;
    if (space.device.device_type != device.device_type || space.device.device_id != device.device_id)
      raise(PyExc_ValueError, "the workspace lies on another device than the operands; theirs would work");
    std::int64_t elements = 1;
    bool dense = true;
    for (int i = space.ndim - 1; i >= 0; --i) {
      dense = dense && (space.strides == nullptr || space.shape[i] == 1 || space.strides[i] == elements);
      if (dense || space.shape[i] == 0) elements *= space.shape[i];
    }
    operands_.workspace = static_cast<std::byte*>(space.data) + space.byte_offset;
    operands_.workspace_size = elements * space.dtype.bits * space.dtype.lanes / 8;
  }

  /// The number of gates that were given: the taps of a convolution's block share one. A launch checks it.
  [[nodiscard]] std::int64_t gate_count() const {
    const auto& gates = tensors_[index_of("gates")];
    return gates && gates->get().ndim == 1 ? gates->get().shape[0] : kernel_.blocks;
  }

  void make_sums(std::string_view name, std::int64_t size, const Tensor& like) {
    const std::size_t output = index_of(name);
    if (objects_[output].is_valid()) return;
    objects_[output] = like.empty({size}, type_of(element_type_named(kernel_.dtype)->sum_name));
    take(output);
  }

  const sk_kernel_view& kernel_;
  const Convolution& convolution_;
  std::uint32_t taken_;
  std::array<nb::object, kCount> objects_;
  std::array<bool, kCount> given_{};
  std::array<std::optional<Tensor>, kCount> tensors_;
  std::optional<Tensor> workspace_;
  sk_operands operands_ = [] {
    sk_operands none;
    sk_operands_init(&none);
    return none;
  }();
  double alpha_ = 1;
  double beta_ = 0;
  std::size_t main_ = 0;
  std::size_t first_ = 0;
  bool stream_given_ = false;
};

/// It may wait for the baking of a tiered kernel, or for a device that still reads tables. Called under the
/// GIL, as all that ends a LaidOut is, which has a Python object.
void free_kernel(sk_kernel* kernel) {
  const nb::gil_scoped_release released;
  sk_kernel_free(kernel);
}

}  // namespace

/// A kernel with one layout. What a call checks, makes and launches belongs to one of these.
struct Kernel::LaidOut {
  LaidOut(std::shared_ptr<sk_kernel> handle_of, nb::object layout_of)
      : handle(std::move(handle_of)), layout(std::move(layout_of)), fixed(view()), taken(taken_by(fixed)) {
    const char* text = nullptr;
    check(sk_kernel_field(handle.get(), "convolution", &text));
    convolution = parse_convolution(text);
  }

  [[nodiscard]] sk_kernel_view view() const {
    sk_kernel_view view{};
    view.size = sizeof(view);
    check(sk_kernel_describe(handle.get(), &view));
    return view;
  }

  std::shared_ptr<sk_kernel> handle;
  nb::object layout;
  sk_kernel_view fixed;  ///< without the text that the handle keeps
  std::uint32_t taken;   ///< one bit for each operand that this kernel uses
  Convolution convolution;
};

Kernel::Kernel(sk_kernel* kernel, nb::object layout)
    : now_(std::make_shared<const LaidOut>(std::shared_ptr<sk_kernel>(kernel, free_kernel),
                                           std::move(layout))) {}

nb::object Kernel::operator()(const nb::args& positional, const nb::kwargs& named) const {
  const std::shared_ptr<const LaidOut> now = now_;
  Call call(now->fixed, now->convolution, now->taken, positional, named);
  const sk_operands& operands = call.prepare();
  sk_status status = SK_OK;
  {
    const nb::gil_scoped_release released;
    status = sk_kernel_run(now->handle.get(), &operands);
  }
  check(status);
  call.was_written();
  return call.result();
}

void Kernel::relayout(const Layout& layout, nb::object shown) {
  const std::shared_ptr<sk_kernel> next(copy(), free_kernel);
  sk_status status = SK_OK;
  {
    const nb::gil_scoped_release released;
    status = sk_kernel_relayout(next.get(), layout.get());
  }
  check(status);
  now_ = std::make_shared<const LaidOut>(next, std::move(shown));
}

std::int64_t Kernel::workspace_bytes(std::int64_t n) const {
  std::int64_t bytes = 0;
  check(sk_kernel_workspace_bytes(now_->handle.get(), n, &bytes));
  return bytes;
}

std::int64_t Kernel::workspace_counter_bytes() const {
  std::int64_t bytes = 0;
  check(sk_kernel_workspace_counter_bytes(now_->handle.get(), &bytes));
  return bytes;
}

void Kernel::wait() const {
  const std::shared_ptr<const LaidOut> now = now_;
  sk_status status = SK_OK;
  {
    const nb::gil_scoped_release released;
    status = sk_kernel_wait(now->handle.get());
  }
  check(status);
}

sk_kernel* Kernel::copy() const {
  sk_kernel* copy = nullptr;
  check(sk_kernel_copy(now_->handle.get(), &copy));
  return copy;
}

sk_kernel_view Kernel::view() const { return now_->view(); }
nb::object Kernel::layout() const { return now_->layout; }

nb::dict Kernel::computation() const {
  nb::dict texts;
  for (std::size_t i = 0; i < sk_field_count(); ++i) {
    sk_field_view field{};
    field.size = sizeof(field);
    check(sk_field_describe(i, &field));
    const char* text = nullptr;
    check(sk_kernel_field(now_->handle.get(), field.name, &text));
    texts[field.argument] = text;
  }
  return texts;
}

namespace {

/// "Kernel(forward, 4096 -> 1024 features, 410 blocks of 32x32, f32, bias+gelu, batch 64, on x86-64-v3:2)"
std::string description(const Kernel& kernel) {
  const sk_kernel_view view = kernel.view();
  std::string text = "Kernel(" + std::string(view.operation) + ", " + std::to_string(view.in_features) +
                     " -> " + std::to_string(view.out_features) + " features, " +
                     std::to_string(view.blocks) + " blocks of " + std::to_string(view.block_out) + "x" +
                     std::to_string(view.block_in) + ", " + view.dtype;
  if (std::string_view(view.out_dtype) != view.dtype) text += std::string(" to ") + view.out_dtype;
  if (std::string_view(view.epilogue) != "none") text += std::string(", ") + view.epilogue;
  const auto batch = nb::cast<std::string>(kernel.computation()["batch"]);
  return text + ", batch " + batch + ", on " + view.target + ")";
}

}  // namespace

void bind_kernel(nb::module_& module) {
  nb::class_<Kernel>(
      module, "Kernel",
      "A compiled layer on a device: what sparsekiln.compile gives. Thread-safe.\n\n"
      "forward     y[n, out] = x[n, in] W^T         kernel(x, w, y=None)\n"
      "grad_input  dx[n, in] = dy[n, out] W         kernel(dy, w, dx=None)\n"
      "grad_weight dw[blocks, block_out, block_in]  kernel(x, dy, dw=None)\n\n"
      "Operands are arrays of NumPy, PyTorch, JAX, CuPy, or what speaks DLPack, of the kernel's type,\n"
      "on its device; rows are contiguous, at any distance. Operands of a convolution are images,\n"
      "[n, (depth,) (height,) width, features], or their rows, and w is\n"
      "[blocks, taps, block_out, block_in]; where blocks lack taps of their own, it is\n"
      "[taps of all blocks, block_out, block_in]. By name: bias[out], v, v_bias, residual,\n"
      "z, gates[blocks], the outputs dbias[out] and dgates[blocks] (float32, of float64\n"
      "operands float64), alpha, beta, workspace (workspace_bytes(n) bytes, the first\n"
      "workspace_counter_bytes() of them zeroed once), stream, a "
      "number, and on the cpu threads: at most so many, 0 for sparsekiln.threads(). The result is the main "
      "output,\n"
      "or a tuple of it and the sums that were asked for; outputs that are not given are made.")
      .def("__call__", &Kernel::operator())
      .def("__repr__", &description)
      .def(
          "relayout",
          [](Kernel& self, nb::object layout) {
            const nb::object shown = nb::module_::import_("sparsekiln.layout").attr("Layout")(layout);
            self.relayout(nb::cast<const Layout&>(shown.attr("_core")), shown);
          },
          nb::arg("layout").none())
      .def(
          "workspace_bytes",
          [](const Kernel& self, nb::handle n) {
            return self.workspace_bytes(argument<std::int64_t>("integer", "n", n));
          },
          nb::arg("n").none())
      .def("workspace_counter_bytes", &Kernel::workspace_counter_bytes)
      .def("wait", &Kernel::wait)
      .def_prop_ro("layout", &Kernel::layout)
      .def_prop_ro("computation", &Kernel::computation)
      .def_prop_ro("op", [](const Kernel& self) { return std::string(self.view().operation); })
      .def_prop_ro("dtype", [](const Kernel& self) { return std::string(self.view().dtype); })
      .def_prop_ro("out_dtype", [](const Kernel& self) { return std::string(self.view().out_dtype); })
      .def_prop_ro("in_features", [](const Kernel& self) { return self.view().in_features; })
      .def_prop_ro("out_features", [](const Kernel& self) { return self.view().out_features; })
      .def_prop_ro("block",
                   [](const Kernel& self) {
                     const sk_kernel_view view = self.view();
                     return nb::make_tuple(view.block_out, view.block_in);
                   })
      .def_prop_ro("batch_bound", [](const Kernel& self) { return self.view().batch; })
      .def_prop_ro("target", [](const Kernel& self) { return std::string(self.view().target); })
      .def_prop_ro("config", [](const Kernel& self) { return std::string(self.view().config); })
      .def_prop_ro("key", [](const Kernel& self) { return std::string(self.view().key); })
      .def_prop_ro("source", [](const Kernel& self) { return std::string(self.view().source); })
      .def_prop_ro("tier", [](const Kernel& self) { return std::string(self.view().tier); })
      .def_prop_ro("compile_ms", [](const Kernel& self) { return self.view().compile_ms; });
}

}  // namespace sparsekiln::python
