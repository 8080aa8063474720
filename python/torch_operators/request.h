#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "python/core/interface.h"
#include "python/torch_operators/dispatcher.h"
#include "python/torch_operators/known_kernels.h"

namespace sparsekiln::torch_operators {

/// The C interface, which Python connects before the first call.
const python::Interface& interface();

/// Why Python refused a call; it keeps the exception itself.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A call that Python computes, since no kernel is known for it or the kernel refused its operands. While it
/// lasts, Python may say which kernel it found, and that it failed, by the functions at the end of
/// request.cpp.
class Request {
 public:
  Request(const Form& form, const Indices& indices, std::int64_t launches);
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request();

  template <std::size_t results, typename... Arguments>
  auto results_of(const char* operation, const Arguments&... arguments) {
    const auto stack = torch_operators::results_of<results>(operation, arguments...);
    std::array<Tensor, results> tensors;
    for (std::size_t i = 0; i < results; ++i) tensors[i] = torch::stable::detail::to<Tensor>(stack[i]);
    check();
    return tensors;
  }

  const Form& form;
  const Indices& indices;
  const std::int64_t launches;  ///< of the kernel, since Python was asked the last time
  bool failed = false;
  std::string reason;

 private:
  void check() const;
  Request* const before_;
};

/// Whether Python decides how a launch begins, which is asked for `overlap` (launch_overlap.py).
bool begins_by_python(std::optional<bool> overlap);

}  // namespace sparsekiln::torch_operators
