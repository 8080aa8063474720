#include "python/core/kernel.h"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "python/core/element_types.h"
#include "python/core/errors.h"
#include "python/core/tensors.h"

namespace sparsekiln::python {
namespace {

/// An argument as sparsekiln._arguments checks it: `kind` is a function there, which raises TypeError or
/// ValueError that names the argument, what was given and what would work. nb::cast says none of these.
template <typename T>
[[nodiscard]] T argument(const char* kind, std::string_view name, nanobind::handle given) {
  namespace nb = nanobind;
  T exact{};
  if (nb::try_cast(given, exact, false)) return exact;  // first: calls of kernels are short
  const nb::object check = nb::module_::import_("sparsekiln._arguments").attr(kind);
  return nb::cast<T>(check(nb::str(name.data(), name.size()), given));
}

/// An operand that a kernel takes.
struct Operand {
  std::string_view name;
  DLDataType type;
  bool written;
  bool added_to;
  bool main;  ///< y, dx or dw
};

[[noreturn]] void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

/// What a kernel takes, in the order of the library.
std::vector<Operand> operands_of(const sk_kernel* kernel) {
  std::size_t count = 0;
  check(sk_kernel_operand_count(kernel, &count));
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < count; ++i) {
    sk_operand_view view{};
    view.size = sizeof(view);
    check(sk_kernel_describe_operand(kernel, i, &view));
    const sk_element_type* const type = element_type_named(view.dtype);
    operands.push_back({view.name,
                        {type->dlpack_code, type->dlpack_bits, 1},
                        view.is_written != 0,
                        view.is_added_to != 0,
                        view.is_main != 0});
  }
  return operands;
}

/// The name of an operand that some kernel has, by this or its other name; empty: there is none.
std::string_view operand_called(std::string_view name) {
  for (std::size_t i = 0;; ++i) {
    const char* const known = sk_operand_name(i);
    if (known == nullptr) return {};
    const char* const alias = sk_operand_alias(i);
    if (known == name || (alias != nullptr && alias == name)) return known;
  }
}

/// The operands of a kernel and their places in a call: the first two, and the main output.
struct Signature {
  explicit Signature(const sk_kernel* kernel) : operands(operands_of(kernel)) {
    if (operands.size() > kMostOperands)
      raise(PyExc_NotImplementedError,
            "a kernel of more operands than this version of the Python package knows");
    while (!operands[main].main) ++main;
  }
  [[nodiscard]] std::array<std::size_t, 3> places() const { return {0, 1, main}; }
  [[nodiscard]] std::size_t index_of(std::string_view name) const {
    std::size_t i = 0;
    while (i < operands.size() && operands[i].name != name) ++i;
    return i;
  }

  std::vector<Operand> operands;
  std::size_t main = 0;
};

/// What a caller gave, and what is made for it.
class Call {
 public:
  Call(const sk_kernel* kernel, std::string_view operation, const Signature& signature,
       const nb::args& positional, const nb::kwargs& named)
      : kernel_(kernel), operation_(operation), signature_(signature) {
    sk_launch_init(&launch_);
    const auto places = signature.places();
    if (positional.size() > places.size())
      raise(PyExc_TypeError, std::string(operation) + " takes three operands by their places, not " +
                                 std::to_string(positional.size()) + "; the others by their names");
    for (std::size_t i = 0; i < positional.size(); ++i) give(places[i], positional[i]);
    for (const auto [key, value] : named) give(name_of(key), value);
  }

  /// Borrows what was given, makes missing outputs and launches the kernel; to be called with the GIL.
  void run() {
    const std::size_t count = signature_.operands.size();
    for (std::size_t i = 0; i < count; ++i)
      if (objects_[i].is_valid()) take(i);
    if (!tensors_[0]) raise(PyExc_TypeError, std::string(operation_) + " needs operand " + name(0));
    const Tensor& like = *tensors_[0];
    if (!objects_[signature_.main].is_valid() && launch_.beta != 0)
      raise(PyExc_ValueError,
            "beta is not 0, and there is no " + name(signature_.main) + " to be multiplied by it");
    for (std::size_t i = 0; i < count; ++i)
      if (is_result(i) && !objects_[i].is_valid()) make(i, like);
    if (!stream_given_) launch_.stream = like.current_stream();
    if (workspace_) take_workspace(like);
    sk_status status = SK_OK;
    {
      const nb::gil_scoped_release released;
      status = sk_kernel_run(kernel_, operands_.data(), operand_count_, &launch_);
    }
    check(status);
    for (std::size_t i = 0; i < count; ++i)  // mark the arrays that were written to as changed
      if (signature_.operands[i].written && given_[i]) tensors_[i]->was_written();
  }

  [[nodiscard]] nb::object result() const {
    nb::list all;
    all.append(objects_[signature_.main]);
    for (std::size_t i = 0; i < signature_.operands.size(); ++i)
      if (is_result(i) && i != signature_.main) all.append(objects_[i]);
    return nb::len(all) == 1 ? nb::borrow(objects_[signature_.main]) : nb::object(nb::tuple(all));
  }

 private:
  static std::string_view name_of(nb::handle key) {
    std::string_view name;
    if (!nb::try_cast(key, name))  // a surrogate
      raise(PyExc_TypeError, "there is no operand " + nb::cast<std::string>(nb::repr(key)));
    return name;
  }
  [[nodiscard]] std::string name(std::size_t i) const { return std::string(signature_.operands[i].name); }
  /// Whether it is made where it was not given; what is added to must be.
  [[nodiscard]] bool is_result(std::size_t i) const {
    return signature_.operands[i].written && !signature_.operands[i].added_to;
  }

  void give(std::size_t operand, nb::handle value) {
    if (objects_[operand].is_valid()) raise(PyExc_TypeError, "operand " + name(operand) + " is given twice");
    if (value.is_none()) return;
    objects_[operand] = nb::borrow(value);
    given_[operand] = true;
  }

  void give(std::string_view name, nb::handle value) {
    if (const std::size_t operand = signature_.index_of(name); operand < signature_.operands.size()) {
      give(operand, value);
    } else if (name == "alpha") {
      launch_.alpha = argument<double>("real", name, value);
    } else if (name == "beta") {
      launch_.beta = argument<double>("real", name, value);
    } else if (name == "epsilon") {
      launch_.epsilon = argument<double>("real", name, value);
    } else if (name == "threads") {
      launch_.threads = argument<std::int32_t>("int32", name, value);
    } else if (name == "workspace") {
      if (!value.is_none()) workspace_.emplace("workspace", value, true);
    } else if (name == "stream") {
      stream_given_ = !value.is_none();
      if (stream_given_)
        launch_.stream = reinterpret_cast<void*>(argument<std::uintptr_t>("unsigned", name, value));
    } else if (const std::string_view operand = operand_called(name); operand.empty()) {
      raise(PyExc_TypeError, "there is no operand '" + std::string(name) + "'");
    } else if (operand != name) {
      give(operand, value);
    } else if (!value.is_none()) {
      raise(PyExc_TypeError, "this kernel (" + std::string(operation_) + ") does not take operand " +
                                 std::string(name) + "; it was compiled without");
    }
  }

  void take(std::size_t i) {
    const Operand& operand = signature_.operands[i];
    const Tensor& tensor = tensors_[i].emplace(operand.name, objects_[i], operand.written);
    operands_[operand_count_++] = {operand.name.data(), &tensor.get()};
  }

  /// An output, with the shape that follows from the first operand.
  void make(std::size_t i, const Tensor& like) {
    const Operand& operand = signature_.operands[i];
    std::array<std::int64_t, SK_MOST_DIMENSIONS> shape{};
    std::int32_t dimensions = 0;
    check(sk_kernel_output_shape(kernel_, operand.name.data(), &like.get(), shape.data(), &dimensions));
    objects_[i] = like.empty(std::span(shape).first(static_cast<std::size_t>(dimensions)), operand.type);
    take(i);
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
    launch_.workspace = static_cast<std::byte*>(space.data) + space.byte_offset;
    launch_.workspace_size = elements * space.dtype.bits * space.dtype.lanes / 8;
  }

  const sk_kernel* kernel_;
  std::string_view operation_;
  const Signature& signature_;
  std::array<nb::object, kMostOperands> objects_;
  std::array<bool, kMostOperands> given_{};
  std::array<std::optional<Tensor>, kMostOperands> tensors_;
  std::array<sk_operand, kMostOperands> operands_;
  std::size_t operand_count_ = 0;
  std::optional<Tensor> workspace_;
  sk_launch launch_;
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
      : handle(std::move(handle_of)),
        layout(std::move(layout_of)),
        operation(view().operation),
        signature(handle.get()) {}

  [[nodiscard]] sk_kernel_view view() const {
    sk_kernel_view view{};
    view.size = sizeof(view);
    check(sk_kernel_describe(handle.get(), &view));
    return view;
  }

  std::shared_ptr<sk_kernel> handle;
  nb::object layout;
  std::string operation;
  Signature signature;
};

Kernel::Kernel(sk_kernel* kernel, nb::object layout)
    : now_(std::make_shared<const LaidOut>(std::shared_ptr<sk_kernel>(kernel, free_kernel),
                                           std::move(layout))) {}

nb::object Kernel::operator()(const nb::args& positional, const nb::kwargs& named) const {
  const std::shared_ptr<const LaidOut> now = now_;
  Call call(now->handle.get(), now->operation, now->signature, positional, named);
  call.run();
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
const sk_kernel* Kernel::handle() const { return now_->handle.get(); }
std::shared_ptr<const sk_kernel> Kernel::hold() const { return {now_, now_->handle.get()}; }

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
      "[taps of all blocks, block_out, block_in]. The operands of the epilogue are given by\n"
      "their names, which refusals list; and alpha, beta, workspace (workspace_bytes(n) bytes, the first\n"
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
      .def_prop_ro("handle",
                   [](const Kernel& self) { return reinterpret_cast<std::uintptr_t>(self.handle()); })
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
