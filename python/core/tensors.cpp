#include "python/core/tensors.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include <nanobind/stl/string.h>

#include "python/core/element_types.h"

namespace sparsekiln::python {
namespace {

constexpr std::uint32_t kExchangeMajor = 1;

/// Looked up once per type. Types with the interface are kept: its table must outlive the calls. Another type
/// at the address of one without it is handled the slow way.
const Exchange* exchange_of(nb::handle object) {
  static auto* const known = new std::unordered_map<PyObject*, const Exchange*>;  // under the GIL
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  if (const auto found = known->find(type); found != known->end()) return found->second;
  const Exchange* exchange = nullptr;
  const nb::object capsule = nb::getattr(nb::handle(type), "__dlpack_c_exchange_api__", nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) {
    const auto* header =
        static_cast<const Exchange::Header*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    while (header != nullptr && header->version.major != kExchangeMajor) header = header->previous;
    exchange = reinterpret_cast<const Exchange*>(header);
    if (exchange != nullptr && exchange->borrow == nullptr) exchange = nullptr;
  }
  if (exchange != nullptr) Py_INCREF(type);
  known->emplace(type, exchange);
  return exchange;
}

/// Imported once: an import is a look-up by name, and calls are short. It is protected by the GIL alone: with
/// a guard of the compiler, one thread would wait for it while holding the GIL, and the import of another
/// would wait for the GIL.
nb::handle arrays() {
  static PyObject* module = nullptr;
  if (module == nullptr) module = nb::module_::import_("sparsekiln._arrays").release().ptr();
  return module;
}

bool requires_grad(nb::handle object) {
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  PyObject* const value = PyObject_GetAttr(object.ptr(), name);
  if (value == nullptr) PyErr_Clear();
  Py_XDECREF(value);
  return value == Py_True;
}

/// Whether PyTorch has put off a change of the signs of this tensor's values, which are in memory without it.
bool is_negated(nb::handle object) {
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  PyObject* arguments[] = {object.ptr()};
  PyObject* const value = PyObject_VectorcallMethod(name, arguments, 1, nullptr);
  if (value == nullptr) PyErr_Clear();
  Py_XDECREF(value);
  return value == Py_True;
}

[[noreturn]] void raise_type_error(const std::string& message) {
  PyErr_SetString(PyExc_TypeError, message.c_str());
  throw nb::python_error();
}

void set_error(void*, const char*, const char* message) { PyErr_SetString(PyExc_RuntimeError, message); }

}  // namespace

Tensor::Tensor(std::string_view operand, nb::handle object, bool written)
    : object_(object), exchange_(exchange_of(object)) {
  if (exchange_ != nullptr) {
    if (requires_grad(object)) arrays().attr("refuse_gradient")(std::string(operand));
    if (is_negated(object)) {
      resolved_ = arrays().attr("resolved")(std::string(operand), object, written);
      object = resolved_;
    }
    if (exchange_->borrow(object.ptr(), &tensor_) != 0) {
      const nb::python_error reason;  // PyTorch's speaks of its own code
      arrays().attr("refuse_form")(std::string(operand), object, reason.value());
    }
  } else if (!take_buffer(written)) {
    take_array(operand, written);
  }
}

/// The buffer protocol: NumPy's arrays of types that it names.
bool Tensor::take_buffer(bool written) {
  if (!PyObject_CheckBuffer(object_.ptr())) return false;
  if (PyObject_GetBuffer(object_.ptr(), &buffer_,
                         PyBUF_FORMAT | PyBUF_STRIDES | (written ? PyBUF_WRITABLE : 0)) != 0) {
    PyErr_Clear();
    return false;
  }
  const std::string_view format = buffer_.format;
  const bool known = format == "f" || format == "e" || format == "d";
  const bool whole = buffer_.ndim <= kMostDimensions &&
                     std::all_of(buffer_.strides, buffer_.strides + buffer_.ndim,
                                 [&](Py_ssize_t stride) { return stride % buffer_.itemsize == 0; });
  if (!known || !whole) {
    PyBuffer_Release(&buffer_);
    return false;
  }
  for (int i = 0; i < buffer_.ndim; ++i)
    strides_[static_cast<std::size_t>(i)] = buffer_.strides[i] / buffer_.itemsize;
  static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
  tensor_.data = buffer_.buf;
  tensor_.device = {kDLCPU, 0};
  tensor_.ndim = buffer_.ndim;
  tensor_.dtype = {kDLFloat, static_cast<std::uint8_t>(8 * buffer_.itemsize), 1};
  tensor_.shape = reinterpret_cast<std::int64_t*>(buffer_.shape);
  tensor_.strides = strides_.data();
  return true;
}

void Tensor::take_array(std::string_view operand, bool written) {
  // Types that DLPack exporters refuse, such as NumPy's bfloat16, come as words of their size, with their
  // name.
  const nb::object exportable = arrays().attr("exportable")(std::string(operand), object_, written);
  const nb::object name = exportable[1];
  const sk_element_type* named =
      name.is_none() ? nullptr : element_type_of_arrays(nb::cast<std::string>(name));
  nb::ndarray<> writable;
  nb::ndarray<nb::ro> array;
  if (written ? !nb::try_cast(exportable[0], writable) : !nb::try_cast(exportable[0], array)) {
    const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(object_.ptr())));
    raise_type_error("operand " + std::string(operand) + ": " + nb::cast<std::string>(nb::repr(type)) +
                     (written ? " is no array that can be written to" : " is no array") +
                     "; NumPy arrays, and what speaks DLPack, would work");
  }
  if (written) array = nb::ndarray<nb::ro>(writable);
  held_.emplace(std::move(array));
  const auto type = held_->dtype();
  tensor_.data = const_cast<void*>(held_->data());
  tensor_.device = {static_cast<DLDeviceType>(held_->device_type()), held_->device_id()};
  tensor_.ndim = static_cast<int>(held_->ndim());
  tensor_.dtype = {named == nullptr ? type.code : named->dlpack_code, type.bits, type.lanes};
  tensor_.shape = const_cast<std::int64_t*>(held_->shape_ptr());
  tensor_.strides = const_cast<std::int64_t*>(held_->stride_ptr());
}

void Tensor::was_written() const {
  if (exchange_ != nullptr) arrays().attr("was_written")(object_);
}

void* Tensor::current_stream() const {
  if (tensor_.device.device_type != kDLCUDA) return nullptr;
  void* stream = nullptr;
  if (exchange_ != nullptr) {
    if (exchange_->current_stream(tensor_.device.device_type, tensor_.device.device_id, &stream) != 0)
      throw nb::python_error();
    return stream;
  }
  return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(arrays().attr("current_stream")(object_)));
}

nb::object Tensor::empty(std::span<const std::int64_t> shape, DLDataType type) const {
  if (exchange_ != nullptr) {
    std::array<std::int64_t, kMostDimensions> sizes{};
    std::copy(shape.begin(), shape.end(), sizes.begin());
    DLTensor prototype{};
    prototype.device = tensor_.device;
    prototype.dtype = type;
    prototype.ndim = static_cast<int>(shape.size());
    prototype.shape = sizes.data();
    Exchange::Managed* managed = nullptr;
    if (exchange_->allocate(&prototype, &managed, nullptr, set_error) != 0) throw nb::python_error();
    void* result = nullptr;
    if (exchange_->to_object(managed, &result) != 0) throw nb::python_error();
    return nb::steal(static_cast<PyObject*>(result));
  }
  nb::list sizes;
  for (const std::int64_t size : shape) sizes.append(size);
  return arrays().attr("empty")(object_, nb::tuple(sizes), element_type_of(type)->array_name);
}

}  // namespace sparsekiln::python
