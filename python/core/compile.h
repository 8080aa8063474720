#pragma once

#include <nanobind/nanobind.h>

namespace sparsekiln::python {

/// Adds `compile(layout, shown, options, progress)`: an _core.Layout, the object that Kernel.layout returns,
/// a dict of the fields of sk_options, and None or a callable that is called with (settled, candidates,
/// best_us, seconds).
void bind_compile(nanobind::module_& module);

}  // namespace sparsekiln::python
