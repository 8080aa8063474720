#pragma once

#include <string_view>

#include <nanobind/nanobind.h>

namespace sparsekiln::python {

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

}  // namespace sparsekiln::python
