#pragma once

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>

#include <nanobind/nanobind.h>
#include <sparsekiln/c.h>

#include "python/core/layout.h"

namespace sparsekiln::python {

namespace nb = nanobind;

/// Owns an sk_kernel. Calls may overlap; relayout waits for them, and they for it.
class Kernel {
 public:
  Kernel(sk_kernel* kernel, nb::object layout);

  /// The main output, or a tuple of it and the sums that were asked for. See sparsekiln.Kernel in _core.pyi.
  nb::object operator()(const nb::args& positional, const nb::kwargs& named) const;
  void relayout(const Layout& layout, nb::object shown);
  [[nodiscard]] std::int64_t workspace_bytes(std::int64_t n) const;
  void wait() const;
  /// Under the GIL; its text until the next call of this.
  [[nodiscard]] sk_kernel_view view() const;
  [[nodiscard]] nb::object layout() const { return layout_; }
  [[nodiscard]] sk_kernel* copy() const;  ///< a handle of its own, as sk_kernel_copy

  /// Runs it with the GIL released or not held; the C interface's errors as its status.
  [[nodiscard]] sk_status run(const sk_operands& operands) const;

 private:
  std::shared_ptr<sk_kernel> kernel_;
  nb::object layout_;
  std::unique_ptr<std::shared_mutex> guard_;
  sk_kernel_view fixed_;  ///< under the GIL, without the text that the handle keeps
  std::uint32_t taken_;   ///< a bit for each operand that this kernel looks at
};

void bind_kernel(nb::module_& module);

}  // namespace sparsekiln::python
