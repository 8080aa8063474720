#pragma once

#include <nanobind/nanobind.h>

namespace sparsekiln::python {

/// Adds `run_command_line(arguments)`: the `sparsekiln` command, with its exit status.
void bind_command(nanobind::module_& module);

}  // namespace sparsekiln::python
