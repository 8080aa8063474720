#pragma once

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>

#include <torch/csrc/stable/stableivalue_conversions.h>
#include <torch/csrc/stable/tensor.h>

namespace sparsekiln::torch_operators {

/// The results of an operator of PyTorch, called by its name.
template <std::size_t results, typename... Arguments>
std::array<StableIValue, (results > sizeof...(Arguments) ? results : sizeof...(Arguments))> results_of(
    const char* name, const Arguments&... arguments) {
  std::array<StableIValue, (results > sizeof...(Arguments) ? results : sizeof...(Arguments))> stack{
      torch::stable::detail::from(arguments)...};
  if (torch_call_dispatcher(name, "", stack.data(), TORCH_ABI_VERSION) != AOTI_TORCH_SUCCESS)
    throw std::runtime_error(std::string(name) + " has failed");
  return stack;
}

/// The result of an operator that has one.
template <typename Result, typename... Arguments>
Result call_dispatcher(const char* name, const Arguments&... arguments) {
  return torch::stable::detail::to<Result>(results_of<1>(name, arguments...)[0]);
}

}  // namespace sparsekiln::torch_operators
