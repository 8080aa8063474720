#include "python/core/errors.h"

#include <nanobind/nanobind.h>

namespace sparsekiln::python {

void check(sk_status status) {
  if (status == SK_OK) return;
  namespace nb = nanobind;
  const nb::object error =
      nb::module_::import_("sparsekiln._errors")
          .attr("error_of")(static_cast<int>(status), sk_error_message(), sk_error_log());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace sparsekiln::python
