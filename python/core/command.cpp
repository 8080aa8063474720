#include "python/core/bindings.h"

#include <csignal>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "tools/command_line.h"

namespace sparsekiln::python {
namespace {

/// `given`: bytes, as the system gave them.
int run_command_line(const nanobind::list& given) {
  std::vector<std::string> arguments;
  for (const nanobind::handle one : given)
    arguments.emplace_back(nanobind::cast<nanobind::bytes>(one).c_str());
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  std::signal(SIGINT, SIG_DFL);  // Python's handler would only note it
  const nanobind::gil_scoped_release released;
  return tools::run_command_line(static_cast<int>(arguments.size()), pointers.data());
}

}  // namespace

void bind_command(nanobind::module_& module) { module.def("run_command_line", run_command_line); }

}  // namespace sparsekiln::python
