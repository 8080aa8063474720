#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace sparsekiln::python {

/// DLPack's C exchange interface between frameworks, version 1.x from 1.2 on (dlpack.h of that version;
/// Debian's is older): the content of `type(tensor).__dlpack_c_exchange_api__`, a capsule named
/// "dlpack_exchange_api". It avoids a Python call and an allocation for each tensor.
struct Exchange {
  struct Version {
    std::uint32_t major, minor;
  };
  struct Header {
    Version version;
    Header* previous;
  };
  struct Managed;  ///< DLManagedTensorVersioned; only passed on
  using SetError = void (*)(void* context, const char* kind, const char* message);

  Header header;
  /// A tensor of the prototype's type, shape and device.
  int (*allocate)(DLTensor* prototype, Managed** tensor, void* context, SetError set_error);
  int (*to_managed)(void* object, Managed** tensor);
  /// Takes ownership of the tensor.
  int (*to_object)(Managed* tensor, void** object);
  /// Borrows the tensor: valid as long as the object is not changed. Null if a framework lacks this function.
  int (*borrow)(void* object, DLTensor* tensor);
  int (*current_stream)(DLDeviceType device, std::int32_t number, void** stream);
};

namespace nb = nanobind;

/// An array of some framework in the form of DLPack, for as long as this object lives. It must not be moved:
/// the tensor points into it.
class Tensor {
 public:
  /// Throws TypeError that names the operand if `object` is not an array, or (`written`) is read-only.
  Tensor(std::string_view operand, nb::handle object, bool written);
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() {
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
  }

  [[nodiscard]] const DLTensor& get() const { return tensor_; }
  /// Tells its framework that the values have changed.
  void was_written() const;
  /// The stream that its framework is using on its device; null on the cpu.
  [[nodiscard]] void* current_stream() const;

  /// An uninitialized array of the same framework and device.
  [[nodiscard]] nb::object empty(std::span<const std::int64_t> shape, DLDataType type) const;
  [[nodiscard]] nb::object empty(std::initializer_list<std::int64_t> shape, DLDataType type) const {
    return empty(std::span(shape.begin(), shape.size()), type);
  }

 private:
  static constexpr int kMostDimensions = 8;
  [[nodiscard]] bool take_buffer(bool written);
  void take_array(std::string_view operand, bool written);

  nb::handle object_;
  nb::object resolved_;  ///< what is read instead of a tensor whose values in memory have other signs
  const Exchange* exchange_ = nullptr;
  Py_buffer buffer_{};  ///< `obj` null: not in use
  std::optional<nb::ndarray<nb::ro>> held_;
  std::array<std::int64_t, kMostDimensions> strides_{};  ///< of buffer_, in elements
  DLTensor tensor_{};
};

}  // namespace sparsekiln::python
