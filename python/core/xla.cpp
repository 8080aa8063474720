/// The XLA FFI: how a compiled JAX program launches a kernel, without Python and without the GIL.
///
/// A custom call contains the kernel's key, a text of everything that the kernel was made from. The program
/// may come from JAX's compilation cache and have been compiled in another process, so a key must mean the
/// same in all of them: an address or a counter would not. The key finds the handle that this process made.

#include "python/core/bindings.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <dlpack/dlpack.h>
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sparsekiln/c.h>
#include <xla/ffi/api/ffi.h>

#include "python/core/errors.h"
#include "python/core/kernel.h"

namespace sparsekiln::python {
namespace {

namespace ffi = xla::ffi;
namespace nb = nanobind;

/// An operand of a kernel, and its shape without leading dimensions.
struct Operand {
  std::string_view name;
  std::size_t rank;
  bool activation;  ///< it has one row per batch row
};

std::vector<Operand> operands_named(const sk_kernel* kernel, const std::vector<std::string>& names) {
  std::vector<Operand> operands;
  for (const std::string& name : names) {
    std::size_t count = 0;
    check(sk_kernel_operand_count(kernel, &count));
    sk_operand_view view{};
    view.size = sizeof(view);
    std::size_t i = 0;
    for (; i < count; ++i) {
      check(sk_kernel_describe_operand(kernel, i, &view));
      if (view.name == name) break;
    }
    if (i == count) throw std::invalid_argument(fmt::format("the kernel has no operand '{}'", name));
    operands.push_back({view.name, static_cast<std::size_t>(view.dimensions), view.is_activation != 0});
  }
  return operands;
}

struct FreeKernel {
  void operator()(sk_kernel* kernel) const { sk_kernel_free(kernel); }
};

/// A kernel in the form in which a custom call launches it.
struct XlaKernel {
  std::unique_ptr<sk_kernel, FreeKernel> kernel;
  std::int64_t most = 0;  ///< rows of one launch
  /// In the order of the custom call's buffers.
  std::vector<Operand> arguments;
  std::vector<Operand> results;
};

struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};

/// The kernels of this process by their keys. They are kept: a compiled program that names one may run at any
/// time, and does not tell when it is destroyed.
class XlaKernels {
 public:
  /// Keeps the first of equal keys, since a program may be running it.
  void add(std::string key, XlaKernel kernel) {
    const std::unique_lock lock(mutex_);
    kernels_.try_emplace(std::move(key), std::make_shared<const XlaKernel>(std::move(kernel)));
  }
  [[nodiscard]] std::shared_ptr<const XlaKernel> find(std::string_view key) const {
    const std::shared_lock lock(mutex_);
    const auto found = kernels_.find(key);
    return found == kernels_.end() ? nullptr : found->second;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const XlaKernel>, TextHash, std::equal_to<>> kernels_;
};

/// Process-wide: XLA calls a handler with nothing but buffers and attributes.
XlaKernels& kernels() {
  static XlaKernels instance;
  return instance;
}

DLDataType dl_type(std::string_view name, ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32:
      return {kDLFloat, 32, 1};
    case ffi::DataType::F16:
      return {kDLFloat, 16, 1};
    case ffi::DataType::BF16:
      return {kDLBfloat, 16, 1};
    case ffi::DataType::F64:
      return {kDLFloat, 64, 1};
    default:
      throw std::invalid_argument(
          fmt::format("{}: kernels take float32, float16, bfloat16 and, on the cpu, float64", name));
  }
}

/// One buffer of a custom call: leading dimensions added by vmap, and the shape of the operand.
struct Buffer {
  const Operand* operand = nullptr;
  std::byte* data = nullptr;
  DLDataType type{};
  ffi::Span<const std::int64_t> leading;
  std::array<std::int64_t, 3> shape{};
  std::int64_t matrix_bytes = 0;  ///< of `shape`
};

Buffer buffer_of(const Operand& operand, const ffi::AnyBuffer& buffer) {
  const auto dimensions = buffer.dimensions();
  if (dimensions.size() < operand.rank) {
    throw std::invalid_argument(
        fmt::format("{} has {} dimensions, not {}", operand.name, dimensions.size(), operand.rank));
  }
  Buffer result;
  result.operand = &operand;
  result.data = static_cast<std::byte*>(buffer.untyped_data());
  result.type = dl_type(operand.name, buffer.element_type());
  const std::size_t leading = dimensions.size() - operand.rank;
  result.leading = {dimensions.begin(), leading};
  result.matrix_bytes = result.type.bits / 8;
  for (std::size_t d = 0; d < operand.rank; ++d) {
    result.shape[d] = dimensions[leading + d];
    result.matrix_bytes *= result.shape[d];
  }
  return result;
}

std::vector<Buffer> buffers_of(const XlaKernel& kernel, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  if (args.size() != kernel.arguments.size() || rets.size() != kernel.results.size()) {
    throw std::invalid_argument(fmt::format("{} arguments and {} results, where the kernel has {} and {}",
                                            args.size(), rets.size(), kernel.arguments.size(),
                                            kernel.results.size()));
  }
  std::vector<Buffer> buffers;
  buffers.reserve(args.size() + rets.size());
  for (std::size_t i = 0; i < rets.size(); ++i) {
    buffers.push_back(buffer_of(kernel.results[i], **rets.get<ffi::AnyBuffer>(i)));
  }
  for (std::size_t i = 0; i < args.size(); ++i) {
    buffers.push_back(buffer_of(kernel.arguments[i], *args.get<ffi::AnyBuffer>(i)));
  }
  std::int64_t n = -1;
  for (const Buffer& buffer : buffers) {
    if (!buffer.operand->activation) continue;
    if (n >= 0 && buffer.shape[0] != n) {
      throw std::invalid_argument(
          fmt::format("{} has {} rows, where others have {}", buffer.operand->name, buffer.shape[0], n));
    }
    n = buffer.shape[0];
  }
  // A result has all mapped dimensions; an argument that is not mapped has a 1 there.
  for (const Buffer& buffer : buffers) {
    const auto& all = buffers.front().leading;
    bool fits = buffer.leading.size() == all.size();
    for (std::size_t d = 0; fits && d < all.size(); ++d) {
      fits = buffer.leading[d] == all[d] || buffer.leading[d] == 1;
    }
    if (!fits) {
      throw std::invalid_argument(fmt::format(
          "the leading dimensions of {} do not go with those of the result", buffer.operand->name));
    }
  }
  return buffers;
}

/// How many of the leading dimensions are left when the inner ones are counted as batch rows: those over
/// which only activations are mapped, so that one launch computes them.
std::size_t outer_dimensions(const std::vector<Buffer>& buffers) {
  const auto& all = buffers.front().leading;
  std::size_t outer = all.size();
  while (outer > 0 && std::all_of(buffers.begin(), buffers.end(), [&](const Buffer& buffer) {
           return buffer.leading[outer - 1] == (buffer.operand->activation ? all[outer - 1] : 1);
         })) {
    --outer;
  }
  return outer;
}

/// The number of the matrix of `buffer` at one index of the outer dimensions, where 1 is repeated.
std::int64_t matrix_at(const Buffer& buffer, const ffi::Span<const std::int64_t>& all, std::size_t outer,
                       std::int64_t index) {
  std::int64_t matrix = 0;
  std::int64_t stride = 1;
  for (std::size_t d = outer; d-- > 0;) {
    if (buffer.leading[d] != 1) matrix += index % all[d] * stride;
    stride *= buffer.leading[d];
    index /= all[d];
  }
  return matrix;
}

/// One launch: `rows` batch rows of the activations from `first` on.
struct Launch {
  std::int64_t outer_index;  ///< index over the dimensions that are not counted as batch rows
  std::int64_t first;
  std::int64_t rows;
};

void run(const XlaKernel& kernel, const std::vector<Buffer>& buffers, std::size_t outer, std::int64_t rows,
         const Launch& launch, DLDevice device, void* stream) {
  sk_launch options;
  sk_launch_init(&options);
  options.stream = stream;
  std::array<DLTensor, kMostOperands> tensors{};
  std::array<std::array<std::int64_t, 3>, kMostOperands> shapes{};
  std::array<sk_operand, kMostOperands> operands{};
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& buffer = buffers[i];
    std::int64_t bytes = buffer.matrix_bytes;
    shapes[i] = buffer.shape;
    std::int64_t begin = 0;
    if (buffer.operand->activation) {
      const std::int64_t row_bytes = buffer.shape[1] * buffer.type.bits / 8;
      shapes[i][0] = launch.rows;
      bytes = row_bytes * rows;
      begin = row_bytes * launch.first;
    }
    begin += matrix_at(buffer, buffers.front().leading, outer, launch.outer_index) * bytes;
    tensors[i] = {buffer.data + begin,
                  device,
                  static_cast<std::int32_t>(buffer.operand->rank),
                  buffer.type,
                  shapes[i].data(),
                  nullptr,
                  0};
    operands[i] = {buffer.operand->name.data(), &tensors[i]};
  }
  const sk_status status = sk_kernel_run(kernel.kernel.get(), operands.data(), buffers.size(), &options);
  if (status == SK_INVALID_ARGUMENT) throw std::invalid_argument(sk_error_message());
  if (status != SK_OK) throw std::runtime_error(sk_error_message());
}

/// All launches of a custom call.
void run_all(const XlaKernel& kernel, const std::vector<Buffer>& buffers, DLDevice device, void* stream) {
  const auto& all = buffers.front().leading;
  const std::size_t outer = outer_dimensions(buffers);
  std::int64_t launches = 1;
  for (std::size_t d = 0; d < outer; ++d) launches *= all[d];

  const auto activation = std::find_if(buffers.begin(), buffers.end(),
                                       [](const Buffer& buffer) { return buffer.operand->activation; });
  if (activation == buffers.end()) throw std::invalid_argument("no operand has a batch");
  std::int64_t rows = activation->shape[0];
  for (std::size_t d = outer; d < all.size(); ++d) rows *= all[d];

  // Rows of results are independent of each other; what is summed over the batch belongs to one launch.
  const bool by_rows = buffers.front().operand->activation;
  if (by_rows && rows == 0) return;
  const std::int64_t most = by_rows ? kernel.most : rows;
  for (std::int64_t index = 0; index < launches; ++index) {
    for (std::int64_t first = 0; first == 0 || first < rows; first += std::max<std::int64_t>(most, 1)) {
      run(kernel, buffers, outer, rows, {index, first, std::min(most, rows - first)}, device, stream);
    }
  }
}

ffi::Error call(std::string_view key, ffi::RemainingArgs args, ffi::RemainingRets rets, DLDevice device,
                void* stream) {
  try {
    const std::shared_ptr<const XlaKernel> kernel = kernels().find(key);
    if (kernel == nullptr) {
      return ffi::Error(
          ffi::ErrorCode::kFailedPrecondition,
          fmt::format("sparsekiln has no kernel '{}' in this process. A program that was compiled in another "
                      "one needs its kernels made here first: trace the function again, or call "
                      "sparsekiln.jax.prepare with the layout and the options of the layer.",
                      key));
    }
    run_all(*kernel, buffers_of(*kernel, args, rets), device, stream);
    return ffi::Error::Success();
  } catch (const std::invalid_argument& error) {
    return ffi::Error::InvalidArgument(fmt::format("sparsekiln, kernel '{}': {}", key, error.what()));
  } catch (const std::exception& error) {
    return ffi::Error::Internal(fmt::format("sparsekiln, kernel '{}': {}", key, error.what()));
  }
}

ffi::Error call_cpu(ffi::RemainingArgs args, ffi::RemainingRets rets, std::string_view key) {
  return call(key, args, rets, {kDLCPU, 0}, nullptr);
}

ffi::Error call_cuda(void* stream, std::int32_t device, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     std::string_view key) {
  return call(key, args, rets, {kDLCUDA, device}, stream);
}

XLA_FFI_DEFINE_HANDLER(kCpuHandler, call_cpu,
                       ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attr<std::string_view>("key"));
XLA_FFI_DEFINE_HANDLER(kCudaHandler, call_cuda,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::PlatformStream<void*>>()
                           .Ctx<ffi::DeviceOrdinal>()
                           .RemainingArgs()
                           .RemainingRets()
                           .Attr<std::string_view>("key"));

void add_kernel(std::string key, const Kernel& kernel, const std::vector<std::string>& arguments,
                const std::vector<std::string>& results) {
  XlaKernel added;
  added.kernel.reset(kernel.copy());
  sk_kernel_view view{};
  view.size = sizeof(view);
  check(sk_kernel_describe(added.kernel.get(), &view));
  added.most = view.batch;
  added.arguments = operands_named(added.kernel.get(), arguments);
  added.results = operands_named(added.kernel.get(), results);
  if (added.results.empty()) throw std::invalid_argument("a kernel has a result");
  if (arguments.size() + results.size() > kMostOperands) throw std::invalid_argument("too many operands");
  kernels().add(std::move(key), std::move(added));
}

}  // namespace

void bind_xla(nb::module_& module) {
  module.def(
      "xla_handlers",
      [] {
        nb::dict handlers;
        handlers["cpu"] = nb::capsule(reinterpret_cast<void*>(kCpuHandler));
        handlers["CUDA"] = nb::capsule(reinterpret_cast<void*>(kCudaHandler));
        return handlers;
      },
      "Handlers of the XLA FFI by platform, for jax.ffi.register_ffi_target. Their one attribute is the key "
      "of "
      "a kernel.");
  module.def(
      "register_xla_kernel", &add_kernel, nb::arg("key"), nb::arg("kernel"), nb::arg("arguments"),
      nb::arg("results"),
      "Lets custom calls find a kernel by its key, for the life of the process. `arguments` and `results` "
      "name its operands in the order of the call's buffers. The first of equal keys is kept.");
  module.def(
      "has_xla_kernel", [](const std::string& key) { return kernels().find(key) != nullptr; },
      nb::arg("key"));
}

}  // namespace sparsekiln::python
