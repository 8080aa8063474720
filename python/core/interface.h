#pragma once

#include <sparsekiln/c.h>

namespace sparsekiln::python {

/// What other libraries of the package call of the C interface: the functions of the one library that is in
/// the extension, which exports no symbols.
struct Interface {
  decltype(&sk_kernel_copy) kernel_copy;
  decltype(&sk_kernel_free) kernel_free;
  decltype(&sk_kernel_run) kernel_run;
  decltype(&sk_stated_threads) stated_threads;
};

}  // namespace sparsekiln::python
