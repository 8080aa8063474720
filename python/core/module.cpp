#include <cstddef>
#include <cstdint>

#include <nanobind/nanobind.h>
#include <sparsekiln/c.h>

#include "python/core/bindings.h"
#include "python/core/element_types.h"
#include "python/core/errors.h"
#include "python/core/interface.h"
#include "python/core/kernel.h"
#include "python/core/layout.h"
#include "python/core/steps.h"

namespace {

constexpr sparsekiln::python::Interface kInterface{.kernel_copy = sk_kernel_copy,
                                                   .kernel_free = sk_kernel_free,
                                                   .kernel_run = sk_kernel_run,
                                                   .stated_threads = sk_stated_threads};

}  // namespace

NB_MODULE(_core, module) {
  module.doc() = "The C interface of sparsekiln, for the package around it.";
  // Daemon threads, and cycles through frameworks that Python's collector does not see, keep kernels until
  // the process ends. Nanobind would report them as leaks on standard error, after the program's own message.
  nanobind::set_leak_warnings(false);
  module.attr("version") = sk_version();
  nanobind::list types;
  for (const sk_element_type& type : sparsekiln::python::element_types())
    types.append(nanobind::make_tuple(type.name, type.array_name, type.sum_array_name,
                                      static_cast<int>(type.dlpack_bits), type.on_cuda != 0,
                                      type.forward_only != 0));
  module.attr("element_types") = nanobind::tuple(types);
  nanobind::dict activations;
  for (std::size_t i = 0; sk_activation_name(i) != nullptr; ++i)
    activations[sk_activation_name(i)] = sk_activation_takes_result(i) != 0;
  module.attr("activations") = activations;
  module.def("threads", sk_threads);
  module.def("stated_threads", sk_stated_threads);
  module.def("set_threads", [](std::int32_t threads) { sparsekiln::python::check(sk_set_threads(threads)); });
  module.def("take_warning", sk_take_warning);
  module.def("set_team", [](std::uintptr_t team) { sk_set_team(reinterpret_cast<sk_team>(team)); });
  module.def("interface", [] { return reinterpret_cast<std::uintptr_t>(&kInterface); });
  sparsekiln::python::bind_layout(module);
  sparsekiln::python::bind_kernel(module);
  sparsekiln::python::bind_steps(module);
  sparsekiln::python::bind_compile(module);
  sparsekiln::python::bind_command(module);
  sparsekiln::python::bind_edge_situations(module);
#ifdef SPARSEKILN_XLA
  sparsekiln::python::bind_xla(module);
#endif
}
