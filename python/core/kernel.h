#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <nanobind/nanobind.h>
#include <sparsekiln/c.h>

#include "python/core/layout.h"

namespace sparsekiln::python {

namespace nb = nanobind;

/// The most operands of a kernel that this package passes on.
inline constexpr std::size_t kMostOperands = 24;

/// An sk_kernel that is replaced when it gets another layout, under the GIL: a call uses the one that is
/// current when it begins, and neither waits for relayout nor relayout for it.
class Kernel {
 public:
  Kernel(sk_kernel* kernel, nb::object layout);

  /// Returns the main output, or a tuple of it and the sums that were asked for. See sparsekiln.Kernel in
  /// _core.pyi.
  nb::object operator()(const nb::args& positional, const nb::kwargs& named) const;
  void relayout(const Layout& layout, nb::object shown);
  [[nodiscard]] std::int64_t workspace_bytes(std::int64_t n) const;
  [[nodiscard]] std::int64_t workspace_counter_bytes() const;
  void wait() const;
  /// Under the GIL; its text until the next call of this.
  [[nodiscard]] sk_kernel_view view() const;
  [[nodiscard]] nb::object layout() const;
  /// As long as this has no other layout, for other libraries of the package: see interface.h.
  [[nodiscard]] const sk_kernel* handle() const;
  /// The same, which another layout does not end. Taken and released under the GIL.
  [[nodiscard]] std::shared_ptr<const sk_kernel> hold() const;
  /// Every field of what is computed, as text, by its name as an argument of sparsekiln.compile.
  [[nodiscard]] nb::dict computation() const;
  [[nodiscard]] sk_kernel* copy() const;  ///< a handle of its own, as sk_kernel_copy

 private:
  struct LaidOut;
  std::shared_ptr<const LaidOut> now_;  ///< read, replaced and released under the GIL
};

void bind_kernel(nb::module_& module);

}  // namespace sparsekiln::python
