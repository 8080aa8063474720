#include <exception>
#include <optional>
#include <string>
#include <tuple>

#include <torch/csrc/stable/library.h>

#include "python/torch_operators/launch.h"
#include "python/torch_operators/request.h"

// The operators of linear layers: see linear/library_operators.py.

namespace sparsekiln::torch_operators {
namespace {

/// The rows of the first tensor; -1, which no kernel is for, if the other one has none.
std::int64_t rows_of_all(const Tensor& first, const std::optional<Tensor>& other) {
  return other && rows_of(*other) < 0 ? -1 : rows_of(first);
}

/// The shape of the values of a weight; zeros for what is none.
std::array<std::int64_t, 3> weight_shape(const Tensor& values) {
  if (values.dim() != 3) return {};
  return {values.size(0), values.size(1), values.size(2)};
}

/// A kernel for a call, and otherwise what Python must know.
struct Known {
  Known(Form form_of, const Tensor& crow, const Tensor& col, std::int64_t n, std::optional<bool> overlap)
      : form(std::move(form_of)), indices(crow, col) {
    if (begins_by_python(overlap)) return;
    kernel = KnownKernels::instance().find(form, indices, n);
    if (kernel == nullptr || kernel->asks_after == 0) return;
    if (const auto count = kernel->launches.fetch_add(1) + 1; count >= kernel->asks_after) {
      launches = count - 1;
      kernel->launches = 0;
      kernel = nullptr;
    }
  }
  [[nodiscard]] Request request() const { return Request(form, indices, launches); }

  const Form form;
  const Indices indices;
  std::shared_ptr<const KnownKernel> kernel;
  std::int64_t launches = 0;
};

Tensor linear(const Tensor& given_x, const Tensor& values, const std::optional<Tensor>& bias,
              const Tensor& crow, const Tensor& col, std::int64_t in_features, std::int64_t out_features,
              const std::string& activation, std::optional<bool> overlap) {
  const Tensor x = unrepeated(given_x);
  const std::int64_t n = rows_of(x);
  const Known known({Operation::forward, in_features, out_features, weight_shape(values), dtype_of(x),
                     bias.has_value(), activation},
                    crow, col, n, overlap);
  if (known.kernel != nullptr) try {
      const Tensor y = empty_rows(x, out_features);
      Launch launch(*known.kernel);
      launch.add_rows("x", x);
      launch.add("w", values, known.kernel->blocks);
      launch.add("bias", bias);
      launch.add_rows("y", y);
      if (launch.run()) return y;
    } catch (const std::exception&) {  // Python finds out why, and says it
    }
  return known.request().results_of<1>("sparsekiln::_linear_by_python", x, values, bias, crow, col,
                                       in_features, out_features, activation, overlap)[0];
}

Tensor grad_input(const Tensor& given_dy, const std::optional<Tensor>& z, const Tensor& values,
                  const Tensor& crow, const Tensor& col, std::int64_t in_features, std::int64_t out_features,
                  const std::string& activation, std::optional<bool> overlap) {
  const Tensor dy = unrepeated(given_dy);
  const std::int64_t n = rows_of_all(dy, z);
  const Known known({Operation::grad_input, in_features, out_features, weight_shape(values), dtype_of(dy),
                     z.has_value(), activation},
                    crow, col, n, overlap);
  if (known.kernel != nullptr) try {
      const Tensor dx = empty_rows(dy, in_features);
      Launch launch(*known.kernel);
      launch.add_rows("dy", dy);
      launch.add("w", values, known.kernel->blocks);
      if (z) launch.add_rows("z", *z);
      launch.add_rows("dx", dx);
      if (launch.run()) return dx;
    } catch (const std::exception&) {
    }
  return known.request().results_of<1>("sparsekiln::_linear_grad_input_by_python", dy, z, values, crow, col,
                                       in_features, out_features, activation, overlap)[0];
}

/// Zeros for the blocks of the gradient that the layout does not have.
void clear_room(const Tensor& dw, std::int64_t blocks) {
  if (dw.size(0) == blocks) return;
  const std::int64_t shape[] = {dw.size(0) - blocks, dw.size(1), dw.size(2)};
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(dw.get(), 3, shape, dw.strides().data(),
                                                        blocks * shape[1] * shape[2], &handle));
  const Tensor room(handle);
  TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(room.get()));
}

/// The sum in float32, rounded to the type of the gradients.
Tensor rounded(const Tensor& sum, std::int32_t dtype) {
  if (dtype_of(sum) == dtype) return sum;
  const Tensor result = empty({sum.size(0)}, sum, dtype);
  TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(result.get(), sum.get(), 0));
  return result;
}

std::tuple<Tensor, Tensor> grad_weight(const Tensor& given_x, const Tensor& given_dy,
                                       const std::optional<Tensor>& z, const Tensor& crow, const Tensor& col,
                                       std::int64_t block_out, std::int64_t block_in,
                                       std::int64_t in_features, std::int64_t out_features,
                                       const std::string& activation, bool bias) {
  const Tensor x = unrepeated(given_x), dy = unrepeated(given_dy);
  const std::int64_t n = rows_of(dy) < 0 ? -1 : rows_of_all(x, z), room = col.numel();
  const std::int32_t dtype = dtype_of(x);
  const Known known({Operation::grad_weight,
                     in_features,
                     out_features,
                     {room, block_out, block_in},
                     dtype,
                     bias,
                     activation},
                    crow, col, n, {});
  if (known.kernel != nullptr) try {
      const Tensor dw = empty({room, block_out, block_in}, x);
      const std::int32_t of_sums = dtype == aoti_torch_dtype_float64() ? dtype : aoti_torch_dtype_float32();
      const Tensor dbias = bias ? empty({out_features}, x, of_sums) : empty({0}, x);
      Launch launch(*known.kernel);
      launch.add_rows("x", x);
      launch.add_rows("dy", dy);
      if (z) launch.add_rows("z", *z);
      launch.add("dw", dw, known.kernel->blocks);
      if (bias) launch.add("dbias", dbias);
      if (launch.run()) {
        clear_room(dw, known.kernel->blocks);
        return {dw, rounded(dbias, dtype)};
      }
    } catch (const std::exception&) {
    }
  const auto results =
      known.request().results_of<2>("sparsekiln::_linear_grad_weight_by_python", x, dy, z, crow, col,
                                    block_out, block_in, in_features, out_features, activation, bias);
  return {results[0], results[1]};
}

/// The backward pass of `linear` by one call of the dispatcher: two launches.
std::tuple<Tensor, Tensor, Tensor> gradients(const Tensor& given_dy, const std::optional<Tensor>& z,
                                             const Tensor& x, const Tensor& values, const Tensor& crow,
                                             const Tensor& col, std::int64_t in_features,
                                             std::int64_t out_features, const std::string& activation,
                                             bool bias) {
  const Tensor dy = unrepeated(given_dy);
  const Tensor dx =
      grad_input(dy, z, values, crow, col, in_features, out_features, activation, /*overlap=*/false);
  const auto [dw, dbias] = grad_weight(x, dy, z, crow, col, values.size(1), values.size(2), in_features,
                                       out_features, activation, bias);
  return {dx, dw, dbias};
}

/// An operator's body as PyTorch calls it. What it throws is thrown by PyTorch itself: no exception leaves
/// this library.
template <auto body>
void operator_of(StableIValue* stack, std::uint64_t arguments, std::uint64_t results) {
  thread_local std::string reason;
  bool done = false;
  try {
    torch::stable::detail::boxer<std::remove_pointer_t<decltype(body)>, body>::boxed_fn(stack, arguments,
                                                                                        results);
    done = true;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (!done) aoti_torch_check(false, "", "", 0, reason.c_str());
}

void add_operators(torch::stable::detail::StableLibrary& library) {
  library.impl("_linear", operator_of<&linear>);
  library.impl("_linear_grad_input", operator_of<&grad_input>);
  library.impl("_linear_grad_weight", operator_of<&grad_weight>);
  library.impl("_linear_gradients", operator_of<&gradients>);
}

}  // namespace
}  // namespace sparsekiln::torch_operators

STABLE_TORCH_LIBRARY_IMPL(sparsekiln, CPU, library) { sparsekiln::torch_operators::add_operators(library); }
STABLE_TORCH_LIBRARY_IMPL(sparsekiln, CUDA, library) { sparsekiln::torch_operators::add_operators(library); }
