#include "runtime/kernel.h"

#include <cstdint>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/attach.h"
#include "compiler/cuda/emit.h"
#include "runtime/operands.h"

namespace sparsekiln {
namespace {

constexpr std::int64_t kWorkspaceAlignment = 64;

// Messages are made here, off the launch path.
[[noreturn, gnu::cold]] void refuse(std::string_view operand, const std::string& why) {
  throw Error(ErrorKind::invalid_argument, fmt::format("{}: {}", operand, why));
}
[[noreturn, gnu::cold]] void refuse_type(std::string_view operand, DType is, DType wanted) {
  refuse(operand, fmt::format("its type is {}, the kernel was compiled for {}", name(is), name(wanted)));
}
[[noreturn, gnu::cold]] void refuse_matrix(std::string_view operand, const TensorView& is,
                                           std::int64_t cols) {
  refuse(operand, fmt::format("rank {} and shape [{}, {}], but the kernel takes [n, {}]", is.rank,
                              is.shape[0], is.shape[1], cols));
}
[[noreturn, gnu::cold]] void refuse_weight(const TensorView& is, const OperandContract& wanted) {
  refuse("w", fmt::format("rank {} and shape [{}, {}, {}], but the kernel takes dense [{}, {}, {}]", is.rank,
                          is.shape[0], is.shape[1], is.shape[2], wanted.blocks, wanted.block.out,
                          wanted.block.in));
}
[[noreturn, gnu::cold]] void refuse_packed(const TensorView& is, std::int64_t elements) {
  refuse("w", fmt::format("rank {}, shape [{}, {}, {}] and strides [{}, {}, {}], but the kernel takes the {} "
                          "elements that Kernel::pack made, dense, of any rank",
                          is.rank, is.shape[0], is.shape[1], is.shape[2], is.stride[0], is.stride[1],
                          is.stride[2], elements));
}
[[noreturn, gnu::cold]] void refuse_stride(std::string_view operand, const TensorView& is,
                                           std::int64_t unit) {
  refuse(operand,
         fmt::format("strides [{}, {}]: the last must be 1, the first at least {} and a multiple of {}",
                     is.stride[0], is.stride[1], is.shape[1], unit));
}
[[noreturn, gnu::cold]] void refuse_address(std::string_view operand, const void* address,
                                            std::int64_t alignment) {
  refuse(operand, address == nullptr
                      ? "its address is null"
                      : fmt::format("its address {} is not aligned to {} bytes", address, alignment));
}
[[noreturn, gnu::cold]] void refuse_batch(std::string_view operand, std::int64_t n, Batch batch) {
  refuse(operand,
         batch.dynamic()
             ? fmt::format("a batch of {}, but the kernel was compiled for at most {}", n, batch.bound())
             : fmt::format("a batch of {}, but the kernel was compiled for {}; Batch::up_to takes several", n,
                           batch.bound()));
}

void check_address(std::string_view operand, const void* address, std::int64_t alignment) {
  if (address == nullptr ||
      reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(alignment) != 0)
    refuse_address(operand, address, alignment);
}

void check_activation(std::string_view operand, const TensorView& view, DType type, std::int64_t cols,
                      std::int64_t alignment) {
  if (view.dtype != type) refuse_type(operand, view.dtype, type);
  if (view.rank != 2 || view.shape[1] != cols) refuse_matrix(operand, view, cols);
  if (view.shape[0] == 0 || cols == 0) return;
  check_address(operand, view.data, alignment);
  const std::int64_t unit = alignment / static_cast<std::int64_t>(size_of(type));
  const bool one_row = view.shape[0] == 1;
  if (view.stride[1] != 1 || (!one_row && (view.stride[0] < cols || view.stride[0] % unit != 0)))
    refuse_stride(operand, view, unit);
}

/// What one operation reads and writes besides the weight.
struct Activations {
  std::string_view from_name;
  const TensorView& from;
  std::int64_t from_features;
  std::string_view to_name;
  const TensorView& to;
  std::int64_t to_features;
};
Activations activations(const Operands& operands, const OperandContract& wanted) {
  const OperandPlaces places = places_of(wanted.operation);
  const bool forward = wanted.operation == Operation::forward;
  return {places.from_name, operands.*places.from, forward ? wanted.in_features : wanted.out_features,
          places.to_name,   operands.*places.to,   forward ? wanted.out_features : wanted.in_features};
}

/// Says which operands a kernel takes, where one of them was left out.
void check_given(const Activations& use, Operation operation) {
  if (use.from.rank == 0 || use.to.rank == 0)
    refuse(use.from.rank == 0 ? use.from_name : use.to_name,
           fmt::format("it was not given; a kernel of {} takes {}, w and {}", name(operation), use.from_name,
                       use.to_name));
}

std::int64_t weight_elements(const OperandContract& wanted) {
  return wanted.blocks * wanted.block.out * wanted.block.in;
}

/// The weight as it lies.
void check_blocks(const TensorView& w, const OperandContract& wanted) {
  if (w.dtype != wanted.dtype) refuse_type("w", w.dtype, wanted.dtype);
  if (wanted.blocks == 0) return;
  const std::int64_t block = std::int64_t{wanted.block.out} * wanted.block.in;
  const bool shaped = w.rank == 3 && w.shape[0] == wanted.blocks && w.shape[1] == wanted.block.out &&
                      w.shape[2] == wanted.block.in;
  const bool dense = w.stride[0] == block && w.stride[1] == wanted.block.in && w.stride[2] == 1;
  if (!shaped || !dense) refuse_weight(w, wanted);
  check_address("w", w.data, wanted.alignment);
}

/// What Kernel::pack made, in any dense shape: its axes are not the layout's any more.
void check_packed(const TensorView& w, const OperandContract& wanted) {
  if (w.dtype != wanted.dtype) refuse_type("w", w.dtype, wanted.dtype);
  if (wanted.blocks == 0) return;
  const std::int64_t all = weight_elements(wanted);
  if (w.rank < 1 || w.rank > 3) refuse_packed(w, all);
  std::int64_t elements = 1;
  for (std::int32_t axis = w.rank - 1; axis >= 0; --axis) {
    if (w.shape[axis] < 1 || w.shape[axis] > all / elements || w.stride[axis] != elements)
      refuse_packed(w, all);
    elements *= w.shape[axis];
  }
  if (elements != all) refuse_packed(w, all);
  check_address("w", w.data, wanted.alignment);
}

void check_weight(const TensorView& w, const OperandContract& wanted) {
  if (wanted.packed)
    check_packed(w, wanted);
  else
    check_blocks(w, wanted);
}

/// The first entry that serves n. Entries are few and ascend.
std::size_t entry_for(const Binary& binary, std::int64_t n) {
  std::size_t entry = 0;
  while (binary.entries[entry].up_to < n) ++entry;
  return entry;
}

bool allowed(std::int64_t n, Batch batch) {
  return batch.dynamic() ? n >= 0 && n <= batch.bound() : n == batch.bound();
}

}  // namespace

Kernel::Kernel(std::shared_ptr<const Impl> impl, From from, double compile_ms)
    : impl_(std::move(impl)), from_(from), compile_ms_(compile_ms) {}

void Kernel::operator()(const Operands& operands) const {
  const Impl& impl = impl_->serving();
  const Binary& binary = *impl.binary;
  const OperandContract& wanted = binary.operands;
  const Activations use = activations(operands, wanted);
  check_given(use, wanted.operation);
  const std::int64_t n = use.from.shape[0];
  check_activation(use.from_name, use.from, wanted.dtype, use.from_features, wanted.alignment);
  check_activation(use.to_name, use.to, wanted.out_dtype, use.to_features, wanted.alignment);
  if (!allowed(n, wanted.batch)) refuse_batch(use.from_name, n, wanted.batch);
  if (use.to.shape[0] != n)
    refuse(use.to_name, fmt::format("{} rows, but {} has {}", use.to.shape[0], use.from_name, n));
  check_weight(operands.w, wanted);
  if (n == 0 || use.to_features == 0) return;

  const std::size_t entry = entry_for(binary, n);
  void* workspace = operands.workspace;
  if (const std::int64_t bytes = binary.entries[entry].workspace_bytes(n); bytes != 0) {
    if (workspace == nullptr) workspace = impl.module->workspace(operands.stream, bytes);
    check_address("workspace", workspace, kWorkspaceAlignment);
  }
  impl.module->launch(entry, {use.from.data, operands.w.data, use.to.data, workspace, n, use.from.stride[0],
                              use.to.stride[0], operands.stream});
}

std::int64_t Kernel::workspace_bytes(std::int64_t n) const {
  const Binary& binary = *impl_->binary;
  if (n < 0 || !allowed(n, binary.operands.batch)) refuse_batch("n", n, binary.operands.batch);
  return binary.entries[entry_for(binary, n)].workspace_bytes(n);
}

std::int64_t Kernel::packed_elements() const {
  const OperandContract& wanted = impl_->binary->operands;
  return wanted.packed ? weight_elements(wanted) : 0;
}

void Kernel::pack(const TensorView& w, void* packed) const {
  const OperandContract& wanted = impl_->binary->operands;
  if (!wanted.packed) refuse("w", "this kernel reads the weight as it lies; there is nothing to pack");
  check_blocks(w, wanted);
  if (wanted.blocks == 0) return;
  check_address("packed", packed, wanted.alignment);
  const auto from = reinterpret_cast<std::uintptr_t>(w.data);
  const auto to = reinterpret_cast<std::uintptr_t>(packed);
  const auto bytes = static_cast<std::uintptr_t>(weight_elements(wanted)) * size_of(wanted.dtype);
  if (from < to + bytes && to < from + bytes)
    refuse("packed", "it overlaps w; the weight is not packed in place");
  impl_->module->pack(w.data, packed);
}

void Kernel::relayout(const Layout& layout) {
  const Binary& binary = *impl_->binary;
  const OperandContract& operands = binary.operands;
  if (impl_->baking.valid() || !cuda::attached(binary.plan))
    refuse("relayout", fmt::format("this kernel {}; one that was compiled with Options::attached would work",
                                   impl_->baking.valid() ? "is tiered" : "has its layout in its code"));
  const std::int64_t rows = operands.out_features / operands.block.out;
  const std::int64_t cols = operands.in_features / operands.block.in;
  if (layout.rows() != rows || layout.cols() != cols)
    refuse("relayout",
           fmt::format("a layout of {} x {} blocks, but the kernel's has {} x {}; compile for it, "
                       "which shares this kernel's code in the store",
                       layout.rows(), layout.cols(), rows, cols));
  auto next = std::make_shared<Impl>();
  next->binary = std::make_shared<const Binary>(cuda::attach(layout, binary));
  next->device = impl_->device;
  next->module = impl_->module->relayout(next->binary);
  next->key = impl_->key;
  impl_ = std::move(next);
}

Tier Kernel::tier() const noexcept {
  return impl_->serving().binary->entries.front().takes_tables() ? Tier::attached : Tier::baked;
}

void Kernel::wait() const {
  if (const std::shared_future<void> baking = impl_->baking; baking.valid()) baking.get();
}

const Binary& Kernel::binary() const { return *impl_->serving().binary; }
const Digest& Kernel::key() const { return impl_->serving().key; }

}  // namespace sparsekiln
