#pragma once

#include <nanobind/nanobind.h>

namespace sparsekiln::python {

/// edge_situations(text) -> (how many, the situation of each position of an image of y).
void bind_edge_situations(nanobind::module_& module);

}  // namespace sparsekiln::python
