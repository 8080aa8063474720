#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

namespace sparsekiln::python {

namespace nb = nanobind;

/// Launches that follow one another on rows of the same matrices, such as the steps of a recurrent layer,
/// made by one call. See sparsekiln.Steps in _core.pyi.
class Steps {
 public:
  /// `launches`: (kernel, ((operand, tensor, first row, rows), …)), numbers but the operand's name; rows -1
  /// for all of a tensor. `written`: the numbers of the tensors that launches write to.
  Steps(const nb::sequence& launches, const nb::sequence& written);

  /// Launches those from `begin` up to `end`.
  void run(const nb::sequence& kernels, const nb::sequence& tensors, std::size_t begin, std::size_t end,
           std::int32_t threads, double epsilon, nb::handle workspace) const;
  [[nodiscard]] std::size_t size() const { return launches_.size(); }

 private:
  struct Operand {
    std::string name;
    std::size_t tensor;
    std::int64_t first;
    std::int64_t rows;
  };
  struct Launch {
    std::size_t kernel;
    std::vector<Operand> operands;
  };
  std::vector<Launch> launches_;
  std::vector<bool> written_;  ///< by the number of a tensor
};

void bind_steps(nb::module_& module);

}  // namespace sparsekiln::python
