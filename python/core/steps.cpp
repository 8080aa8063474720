#include "python/core/steps.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include <nanobind/stl/string.h>
#include <sparsekiln/c.h>

#include "python/core/errors.h"
#include "python/core/kernel.h"
#include "python/core/tensors.h"

namespace sparsekiln::python {
namespace {

using Extents = std::array<std::int64_t, SK_MOST_DIMENSIONS>;

/// `rows` rows of a tensor from `first` on; `shape` is what it points to.
DLTensor rows_of(const DLTensor& tensor, std::int64_t first, std::int64_t rows, Extents& shape) {
  DLTensor part = tensor;
  std::copy(tensor.shape, tensor.shape + tensor.ndim, shape.begin());
  shape[0] = rows;
  part.shape = shape.data();
  std::int64_t stride = 1;
  if (tensor.strides != nullptr)
    stride = tensor.strides[0];
  else
    for (int i = 1; i < tensor.ndim; ++i) stride *= tensor.shape[i];
  part.byte_offset += static_cast<std::uint64_t>(first * stride * (tensor.dtype.bits / 8));
  return part;
}

std::size_t number(nb::handle given) { return nb::cast<std::size_t>(given); }

}  // namespace

Steps::Steps(const nb::sequence& launches, const nb::sequence& written) {
  for (const nb::handle launch : launches) {
    Launch& one = launches_.emplace_back(Launch{number(launch[0]), {}});
    for (const nb::handle operand : launch[1]) {
      one.operands.push_back({nb::cast<std::string>(operand[0]), number(operand[1]),
                              nb::cast<std::int64_t>(operand[2]), nb::cast<std::int64_t>(operand[3])});
      written_.resize(std::max(written_.size(), one.operands.back().tensor + 1));
    }
    if (one.operands.size() > kMostOperands)
      throw nb::value_error("a launch of more operands than kernels have");
  }
  for (const nb::handle tensor : written) {
    if (number(tensor) >= written_.size())
      throw nb::value_error("a tensor that no launch has is not written");
    written_[number(tensor)] = true;
  }
}

void Steps::run(const nb::sequence& kernels, const nb::sequence& tensors, std::size_t begin, std::size_t end,
                std::int32_t threads, double epsilon, nb::handle workspace) const {
  std::vector<std::shared_ptr<const sk_kernel>> held;
  for (const nb::handle kernel : kernels) held.push_back(nb::cast<const Kernel&>(kernel).hold());
  std::vector<std::unique_ptr<Tensor>> given;
  for (const nb::handle tensor : tensors) {
    const std::size_t i = given.size();
    given.push_back(
        std::make_unique<Tensor>("tensor " + std::to_string(i), tensor, i < written_.size() && written_[i]));
    if (given.back()->get().ndim < 1 || given.back()->get().ndim > SK_MOST_DIMENSIONS)
      throw nb::value_error("a tensor has rows, and at most eight dimensions");
  }
  if (given.size() < written_.size() || given.empty() || begin > end || end > launches_.size())
    throw nb::value_error("launches, or tensors, that are not there");
  sk_launch settings{};
  sk_launch_init(&settings);
  settings.threads = threads;
  settings.epsilon = epsilon;
  settings.stream = given.front()->current_stream();
  std::optional<Tensor> space;
  if (!workspace.is_none()) {
    const DLTensor& bytes = space.emplace("workspace", workspace, true).get();
    if (bytes.ndim != 1) throw nb::value_error("a workspace has one dimension");
    settings.workspace = static_cast<std::byte*>(bytes.data) + bytes.byte_offset;
    settings.workspace_size = bytes.shape[0] * bytes.dtype.bits / 8;
  }

  const auto launch = [&](const Launch& one) {
    std::array<DLTensor, kMostOperands> parts;
    std::array<Extents, kMostOperands> shapes;
    std::array<sk_operand, kMostOperands> operands;
    std::size_t count = 0;
    for (const Operand& operand : one.operands) {
      const DLTensor& whole = given[operand.tensor]->get();
      parts[count] = operand.rows < 0 ? whole : rows_of(whole, operand.first, operand.rows, shapes[count]);
      operands[count] = {operand.name.c_str(), &parts[count]};
      ++count;
    }
    return sk_kernel_run(held[one.kernel].get(), operands.data(), count, &settings);
  };
  for (std::size_t i = begin; i < end; ++i) {
    if (launches_[i].kernel >= held.size()) throw nb::value_error("a kernel that is not there");
    for (const Operand& operand : launches_[i].operands) {
      const std::int64_t there = given[operand.tensor]->get().shape[0];
      if (operand.rows != -1 &&
          (operand.rows < 0 || operand.first < 0 || operand.first + operand.rows > there))
        throw nb::value_error("rows that a tensor does not have");
    }
  }
  sk_status status = SK_OK;
  {
    const nb::gil_scoped_release released;
    for (std::size_t i = begin; i < end && status == SK_OK; ++i) status = launch(launches_[i]);
  }
  check(status);
  for (std::size_t i = 0; i < written_.size(); ++i)
    if (written_[i]) given[i]->was_written();
}

void bind_steps(nb::module_& module) {
  nb::class_<Steps>(module, "Steps")
      .def(nb::init<const nb::sequence&, const nb::sequence&>(), nb::arg("launches"), nb::arg("written"))
      .def("run", &Steps::run, nb::arg("kernels"), nb::arg("tensors"), nb::arg("begin"), nb::arg("end"),
           nb::arg("threads") = 0, nb::arg("epsilon") = 1e-5, nb::arg("workspace") = nb::none())
      .def("__len__", &Steps::size);
}

}  // namespace sparsekiln::python
