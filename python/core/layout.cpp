#include "python/core/layout.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/core/errors.h"

namespace sparsekiln::python {
namespace {

namespace nb = nanobind;

using Indices = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Mask = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

[[noreturn]] void raise_value_error(const std::string& message) {
  PyErr_SetString(PyExc_ValueError, message.c_str());
  throw nb::python_error();
}

Layout from_csr(std::int64_t rows, std::int64_t cols, const Indices& crow, const Indices& col) {
  if (rows < 0 || crow.shape(0) != static_cast<std::size_t>(rows) + 1)
    raise_value_error("crow has " + std::to_string(crow.shape(0)) + " entries; " + std::to_string(rows) +
                      " block rows take " + std::to_string(rows + 1));
  if (col.shape(0) != static_cast<std::size_t>(crow.data()[rows]))
    raise_value_error("col has " + std::to_string(col.shape(0)) + " entries, and crow ends with " +
                      std::to_string(crow.data()[rows]));
  sk_layout* layout = nullptr;
  check(sk_layout_from_csr(rows, cols, crow.data(), col.data(), &layout));
  return Layout(layout);
}

Layout from_mask(const Mask& mask) {
  sk_layout* layout = nullptr;
  check(sk_layout_from_mask(static_cast<std::int64_t>(mask.shape(0)),
                            static_cast<std::int64_t>(mask.shape(1)), mask.data(), &layout));
  return Layout(layout);
}

Layout load(const nb::bytes& file) {
  sk_layout* layout = nullptr;
  check(sk_layout_load(file.c_str(), &layout));
  return Layout(layout);
}

Layout transposed(const Layout& layout) {
  sk_layout* result = nullptr;
  check(sk_layout_transposed(layout.get(), &result));
  return Layout(result);
}

std::vector<const sk_layout*> handles_of(const std::vector<const Layout*>& layouts) {
  std::vector<const sk_layout*> handles;
  for (const Layout* layout : layouts) handles.push_back(layout->get());
  return handles;
}

Layout diagonal(const std::vector<const Layout*>& parts) {
  const std::vector<const sk_layout*> handles = handles_of(parts);
  sk_layout* result = nullptr;
  check(sk_layout_diagonal(handles.data(), handles.size(), &result));
  return Layout(result);
}

/// (minimum, median, mean, maximum, share) after each layer.
nb::list mixing(const std::vector<const Layout*>& layers) {
  const std::vector<const sk_layout*> handles = handles_of(layers);
  std::vector<sk_mixing> after(handles.size());
  sk_status status = SK_OK;
  {
    const nb::gil_scoped_release release;
    status = sk_layout_mixing(handles.data(), handles.size(), after.data());
  }
  check(status);
  nb::list result;
  for (const sk_mixing& one : after)
    result.append(nb::make_tuple(one.minimum, one.median, one.mean, one.maximum, one.share));
  return result;
}

/// Copies an argument of a pattern to its field.
void set(sk_pattern& pattern, std::string_view name, nb::handle value) {
  const std::pair<std::string_view, std::int64_t*> integers[] = {{"rows", &pattern.rows},
                                                                 {"cols", &pattern.cols},
                                                                 {"groups", &pattern.groups},
                                                                 {"half_width", &pattern.half_width},
                                                                 {"size", &pattern.extent},
                                                                 {"edges", &pattern.edges},
                                                                 {"extra_edges", &pattern.extra_edges},
                                                                 {"stride", &pattern.stride},
                                                                 {"window", &pattern.window},
                                                                 {"global_blocks", &pattern.global_blocks},
                                                                 {"random_blocks", &pattern.random_blocks}};
  for (const auto& [known, field] : integers)
    if (name == known) {
      *field = nb::cast<std::int64_t>(value);
      return;
    }
  if (name == "density") {
    pattern.density = nb::cast<double>(value);
  } else if (name == "rewire") {
    pattern.rewire = nb::cast<double>(value);
  } else if (name == "seed") {
    pattern.seed = nb::cast<std::uint64_t>(value);
  } else if (name == "diagonal") {
    pattern.diagonal = nb::cast<bool>(value) ? 1 : 0;
  } else {
    raise_value_error("patterns have no argument '" + std::string(name) + "'");
  }
}

Layout pattern(const std::string& name, const nb::kwargs& arguments) {
  sk_pattern pattern;
  sk_pattern_init(&pattern);
  for (const auto [key, value] : arguments) set(pattern, nb::cast<std::string>(key), value);
  sk_layout* layout = nullptr;
  check(sk_layout_pattern(name.c_str(), &pattern, &layout));
  return Layout(layout);
}

nb::ndarray<nb::numpy, const std::int32_t> indices(nb::handle self, const std::int32_t* data,
                                                   std::int64_t size) {
  const std::size_t shape[] = {static_cast<std::size_t>(size)};
  return nb::ndarray<nb::numpy, const std::int32_t>(data, 1, shape, self);
}

}  // namespace

sk_layout_view Layout::view() const {
  sk_layout_view view{};
  view.size = sizeof(view);
  check(sk_layout_describe(layout_.get(), &view));
  return view;
}

void bind_layout(nb::module_& module) {
  nb::class_<Layout>(module, "Layout")
      .def_static("from_csr", from_csr)
      .def_static("from_mask", from_mask)
      .def_static("diagonal", diagonal)
      .def_static("load", load)
      .def_static("mixing", mixing)
      .def_static("pattern", pattern)
      .def("save",
           [](const Layout& self, const nb::bytes& file) { check(sk_layout_save(self.get(), file.c_str())); })
      .def("transposed", transposed)
      .def_prop_ro("rows", [](const Layout& self) { return self.view().rows; })
      .def_prop_ro("cols", [](const Layout& self) { return self.view().cols; })
      .def_prop_ro("blocks", [](const Layout& self) { return self.view().blocks; })
      .def_prop_ro("density", [](const Layout& self) { return self.view().density; })
      .def_prop_ro("digest", [](const Layout& self) { return std::string(self.view().digest); })
      .def_prop_ro("crow",
                   [](nb::handle self) {
                     const sk_layout_view view = nb::cast<const Layout&>(self).view();
                     return indices(self, view.crow, view.rows + 1);
                   })
      .def_prop_ro("col", [](nb::handle self) {
        const sk_layout_view view = nb::cast<const Layout&>(self).view();
        return indices(self, view.col, view.blocks);
      });
}

}  // namespace sparsekiln::python
