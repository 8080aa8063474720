#pragma once

#include <nanobind/nanobind.h>

namespace sparsekiln::python {

/// Adds `compile(layout, shown, fields, options, progress)`: an _core.Layout, the object that Kernel.layout
/// returns, the texts of what is computed by the names of sk_field, the other members of sk_options by
/// theirs, and None or a callable that is called with (settled, candidates, best_us, seconds). Also
/// `computation_fields()`: a dict of the members of sk_field_view for each field.
void bind_compile(nanobind::module_& module);

}  // namespace sparsekiln::python
