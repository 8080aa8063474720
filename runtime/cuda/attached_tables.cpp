#include "runtime/cuda/attached_tables.h"

#include <utility>

#include <fmt/format.h>

#include "runtime/cuda/relaxed_capture.h"
#include "runtime/cuda/upload_stream.h"

namespace sparsekiln::cuda {
namespace {

/// Block columns of the product of a linear layer, the last of which may be cut: Spmm::in_blocks.
std::int32_t block_columns(const OperandContract& operands) {
  const bool forward = operands.operation != Operation::grad_input;
  const std::int64_t features = forward ? operands.in_features : operands.out_features;
  const std::int64_t side = forward ? operands.block.in : operands.block.out;
  const std::int64_t gates = forward ? 1 : operands.gates_of_cell();  // whose gradients are summed
  return static_cast<std::int32_t>(gates * ((features + side - 1) / side));
}

}  // namespace

AttachedTables::AttachedTables(std::shared_ptr<const Context> context, const Binary& binary)
    : context_(std::move(context)) {
  std::size_t bytes = 0;  // images are multiples of their alignment long
  for (const Entry& entry : binary.entries) bytes += entry.tables.bytes.size();
  if (bytes == 0) return;
  const RelaxedCapture relaxed(context_->api());
  if (const CUresult result = context_->api().mem_alloc(&memory_, bytes); result != CUDA_SUCCESS)
    context_->driver().fail(result, fmt::format("allocating {} bytes for a layout's tables on {}", bytes,
                                                context_->device().name));
  try {
    upload(binary);
  } catch (...) {
    static_cast<void>(context_->api().mem_free(memory_));
    throw;
  }
}

void AttachedTables::upload(const Binary& binary) {
  const UploadStream stream(context_->driver(), "a layout's tables");
  CUdeviceptr at = memory_;
  for (const Entry& entry : binary.entries) {
    const TableImage& image = entry.tables;
    Parameter parameter{};
    for (std::size_t array = 0; array < TableImage::kArrays; ++array)
      parameter.arrays[array] = at + static_cast<CUdeviceptr>(image.offsets[array]);
    parameter.counter_bytes = entry.workspace.counter_bytes;
    parameter.tile_bytes = entry.workspace.bytes_per_tile;
    parameter.counters = image.counters;
    parameter.features = static_cast<std::int32_t>(binary.operands.out_features);
    parameter.columns = block_columns(binary.operands);
    parameter.blocks = static_cast<std::int32_t>(binary.operands.blocks);
    arguments_.push_back(parameter);
    if (!image.bytes.empty()) stream.copy(at, image.bytes);
    at += image.bytes.size();
  }
  stream.wait();
}

AttachedTables::~AttachedTables() {
  if (memory_ == 0) return;
  const ContextScope scope(*context_, std::nothrow);
  if (!scope.entered()) return;  // where the context is gone, so is its memory
  const RelaxedCapture relaxed(context_->api());
  static_cast<void>(context_->api().mem_free(memory_));
}

}  // namespace sparsekiln::cuda
