#pragma once

#include <memory>

#include <nanobind/nanobind.h>
#include <sparsekiln/c.h>

namespace sparsekiln::python {

/// Owns an sk_layout.
class Layout {
 public:
  explicit Layout(sk_layout* layout) : layout_(layout, sk_layout_free) {}
  [[nodiscard]] const sk_layout* get() const { return layout_.get(); }
  [[nodiscard]] sk_layout_view view() const;

 private:
  std::shared_ptr<sk_layout> layout_;
};

void bind_layout(nanobind::module_& module);

}  // namespace sparsekiln::python
