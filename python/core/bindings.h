#pragma once

#include <nanobind/nanobind.h>

// What module.cpp adds to the extension, each from a file of its own: kernel.h and layout.h have the rest.
namespace sparsekiln::python {

/// Adds `run_command_line(arguments)`: the `sparsekiln` command, with its exit status.
void bind_command(nanobind::module_& module);

/// Adds `compile(layout, shown, fields, options, progress)`: an _core.Layout, the object that Kernel.layout
/// returns, the texts of what is computed by the names of sk_field, the other members of sk_options by
/// theirs, and None or a callable that is called with (settled, candidates, best_us, seconds). Also
/// `computation_fields()`: a dict of the members of sk_field_view for each field.
void bind_compile(nanobind::module_& module);

/// edge_situations(text) -> (how many, the situation of each position of an image of y).
void bind_edge_situations(nanobind::module_& module);

/// Adds what sparsekiln.jax needs: handlers of the XLA FFI, and the registry in which they find kernels.
void bind_xla(nanobind::module_& module);

}  // namespace sparsekiln::python
