#pragma once

#include <nanobind/nanobind.h>

namespace sparsekiln::python {

/// Adds what sparsekiln.jax needs: handlers of the XLA FFI, and the registry in which they find kernels.
void bind_xla(nanobind::module_& module);

}  // namespace sparsekiln::python
