#include "python/core/bindings.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <sparsekiln/c.h>
#include <sparsekiln/convolution.h>

#include "python/core/errors.h"

namespace sparsekiln::python {
namespace {

namespace nb = nanobind;

using Situations = nb::ndarray<nb::numpy, std::int32_t>;

std::pair<std::int32_t, Situations> situations(const std::string& text) {
  std::int32_t count = 0;
  std::int64_t positions = 0;
  check(sk_edge_situations(text.c_str(), &count, &positions, nullptr));
  auto numbers = std::make_unique<std::int32_t[]>(static_cast<std::size_t>(positions));
  check(sk_edge_situations(text.c_str(), &count, &positions, numbers.get()));
  const Convolution convolution = parse_convolution(text);
  const Convolution::Extents output = convolution.output();
  std::size_t shape[3] = {};
  const auto rank = static_cast<std::size_t>(convolution.dimensions);
  for (std::size_t i = 0; i < rank; ++i) shape[i] = static_cast<std::size_t>(output[3 - rank + i]);
  std::int32_t* const data = numbers.get();
  const nb::capsule owner(numbers.release(),
                          [](void* memory) noexcept { delete[] static_cast<std::int32_t*>(memory); });
  return {count, Situations(data, rank, shape, owner)};
}

}  // namespace

void bind_edge_situations(nb::module_& module) { module.def("edge_situations", situations); }

}  // namespace sparsekiln::python
