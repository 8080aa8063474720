#include "runtime/kernel.h"

#include <cstdint>

#include <fmt/format.h>

#include "autotune/default_plan.h"
#include "compiler/plan.h"
#include "runtime/operand_check.h"
#include "runtime/operand_refusal.h"
#include "runtime/weight_check.h"

namespace sparsekiln {
namespace {

constexpr std::int64_t kWorkspaceAlignment = 64;
constexpr std::int64_t kPackedAlignment = 16;

/// The first entry that serves n. Entries are few and ascend.
std::size_t entry_for(const Binary& binary, std::int64_t n) {
  std::size_t entry = 0;
  while (binary.entries[entry].up_to < n) ++entry;
  return entry;
}

[[noreturn, gnu::cold]] void refuse_workspace(std::int64_t size, std::int64_t n, std::int64_t bytes) {
  refuse("workspace",
         fmt::format("workspace_size is {} bytes, and a launch with a batch of {} takes {}: dense "
                     "memory of workspace_bytes({}) bytes would work",
                     size, n, bytes, n));
}

/// The caller's workspace, large enough for a batch of n.
void* checked_workspace(const Operands& operands, const Binary& binary, std::int64_t n) {
  const std::int64_t bytes = binary.workspace_bytes(n);
  if (operands.workspace_size < bytes) refuse_workspace(operands.workspace_size, n, bytes);
  if (bytes != 0) check_address("workspace", operands.workspace, kWorkspaceAlignment);
  return operands.workspace;
}

/// What a launch of `entry` uses: the caller's workspace, else one that the module keeps, else none.
void* workspace_for(const Operands& operands, const Kernel::Impl& impl, std::size_t entry, std::int64_t n) {
  if (operands.workspace != nullptr || operands.workspace_size != 0)
    return checked_workspace(operands, *impl.binary, n);
  const std::int64_t bytes = impl.binary->entries[entry].workspace_bytes(n);
  return bytes == 0 ? nullptr : impl.module->workspace(operands.stream, bytes);
}

/// Lets the product write its sums to the workspace, and the pass that finishes them read them there.
void place_sums(const Entry& entry, DType type, LaunchOperands& launch) {
  launch.y = static_cast<std::byte*>(launch.workspace) + entry.sums_begin(launch.n);
  launch.y_stride = entry.workspace.sums_of_one / static_cast<std::int64_t>(size_of(type));
  launch.normalisation.dh = {launch.y, launch.y_stride};
}

}  // namespace

Kernel::Kernel(std::shared_ptr<const Impl> impl, From from, double compile_ms)
    : impl_(std::move(impl)), from_(from), compile_ms_(compile_ms) {}

void Kernel::operator()(const Operands& operands) const {
  const Impl& impl = impl_->serving();
  const Binary& binary = *impl.binary;
  CheckedOperands checked = check_operands(operands, binary.operands, impl.taken, impl.module->device());
  if (checked.matrices == 0) return;

  const std::size_t entry = entry_for(binary, checked.first.n);
  checked.first.workspace = workspace_for(operands, impl, entry, checked.first.n);
  if (binary.entries[entry].workspace.sums_of_one != 0)
    place_sums(binary.entries[entry], binary.operands.sum_type(), checked.first);
  for (std::int64_t matrix = 0; matrix < checked.matrices; ++matrix) {
    impl.module->launch(entry, {checked.first, operands.stream, operands.threads});
    checked.advance();
  }
}

std::int64_t Kernel::workspace_bytes(std::int64_t n) const {
  const Binary& binary = *impl_->binary;
  if (n < 0 || !takes_batch(n, binary.operands.batch)) refuse_batch("n", n, binary.operands.batch);
  return binary.workspace_bytes(n);
}

std::int64_t Kernel::workspace_counter_bytes() const { return impl_->binary->workspace_counter_bytes(); }

std::int64_t Kernel::packed_elements() const {
  const OperandContract& wanted = impl_->binary->operands;
  return wanted.packed ? weight_elements(wanted) : 0;
}

void Kernel::pack(const TensorView& w, void* packed) const {
  const OperandContract& wanted = impl_->binary->operands;
  if (!wanted.packed) refuse("w", "this kernel reads the weight unpacked; there is nothing to pack");
  check_blocks("w", w, wanted.dtype, wanted);
  if (wanted.blocks == 0) return;
  check_address("packed", packed, kPackedAlignment);
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
  if (!attached(binary.plan) && operands.convolution.present() && operands.convolution.taps_of_block() == 0)
    refuse("relayout",
           "this kernel has a mask of taps for each block of its layout; one that was compiled with "
           "Specialization::attached, and with a mask for all blocks or none, would work");
  if (impl_->baking.valid() || !attached(binary.plan))
    refuse("relayout",
           fmt::format("this kernel {}; one that was compiled with Specialization::attached would work",
                       impl_->baking.valid() ? "is tiered" : "has its layout in its code"));
  const auto blocks_of = [](std::int64_t features, std::int32_t side) {
    return (features + side - 1) / side;
  };
  const auto cut_of = [](std::int64_t features, std::int32_t side) {
    return features % side == 0 ? 0 : features;
  };
  const bool transposed = operands.convolution.transposed;  // rows are of x's features
  const std::int64_t of_rows = transposed ? operands.in_features : operands.out_features;
  const std::int64_t of_cols = transposed ? operands.out_features : operands.in_features;
  const std::int64_t rows = blocks_of(of_rows, operands.block.out);
  const std::int64_t cols = blocks_of(of_cols, operands.block.in);
  if (layout.rows() != rows || layout.cols() != cols)
    refuse("relayout",
           fmt::format("a layout of {} x {} blocks, but the kernel's has {} x {}; compile for it, "
                       "which shares this kernel's code in the store",
                       layout.rows(), layout.cols(), rows, cols));
  const std::int64_t cut_rows = cut_of(of_rows, operands.block.out);
  const std::int64_t cut_cols = cut_of(of_cols, operands.block.in);
  const Cuts cuts = transposed ? Cuts{cut_rows, cut_cols} : Cuts{cut_cols, cut_rows};
  auto next = std::make_shared<Impl>(std::make_shared<const Binary>(attach_as_priced(layout, binary, cuts)));
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
