#pragma once

#include <sparsekiln/c.h>

namespace sparsekiln::python {

/// Raises the Python exception (`sparsekiln.Error`) of a call of the C interface that failed on this thread.
void check(sk_status status);

}  // namespace sparsekiln::python
