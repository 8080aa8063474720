#pragma once

#include <cstddef>
#include <string_view>

#include <sparsekiln/c.h>

namespace sparsekiln::python {

/// The element type of which `is` is true; null: there is none.
template <class Is>
[[nodiscard]] const sk_element_type* find_element_type(const Is& is) {
  for (std::size_t i = 0;; ++i) {
    const sk_element_type* type = sk_element_type_at(i);
    if (type == nullptr || is(*type)) return type;
  }
}
[[nodiscard]] inline const sk_element_type* element_type_named(std::string_view name) {
  return find_element_type([&](const sk_element_type& type) { return name == type.name; });
}
/// By the name that NumPy and PyTorch have for it.
[[nodiscard]] inline const sk_element_type* element_type_of_arrays(std::string_view array_name) {
  return find_element_type([&](const sk_element_type& type) { return array_name == type.array_name; });
}
[[nodiscard]] inline const sk_element_type* element_type_of(const DLDataType& dlpack) {
  return find_element_type([&](const sk_element_type& type) {
    return dlpack.lanes == 1 && dlpack.code == type.dlpack_code && dlpack.bits == type.dlpack_bits;
  });
}

}  // namespace sparsekiln::python
