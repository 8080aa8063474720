#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <sparsekiln/c.h>

namespace sparsekiln::python {

/// All of them, in the order of the library.
[[nodiscard]] inline const std::vector<sk_element_type>& element_types() {
  static const std::vector<sk_element_type> all = [] {
    std::vector<sk_element_type> types(sk_element_type_count());
    for (std::size_t i = 0; i < types.size(); ++i) {
      types[i].size = sizeof(types[i]);
      (void)sk_element_type_describe(i, &types[i]);  // fails only for an index past the last
    }
    return types;
  }();
  return all;
}

/// The element type of which `is` is true; null: there is none.
template <class Is>
[[nodiscard]] const sk_element_type* find_element_type(const Is& is) {
  for (const sk_element_type& type : element_types())
    if (is(type)) return &type;
  return nullptr;
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
