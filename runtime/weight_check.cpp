#include "runtime/weight_check.h"

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "runtime/operand_refusal.h"

namespace sparsekiln {
namespace {

constexpr std::int64_t kWeightAlignment = 16;

/// What the blocks of a weight of four axes are counted by: blocks of the layout and the taps of each, or the
/// weights of an LSTM's cell and the blocks of each.
struct GroupedBlocks {
  std::int64_t groups;
  std::int64_t blocks_of_group;
};
/// Nothing: the weight has three axes.
std::optional<GroupedBlocks> grouped_blocks(const OperandContract& contract) {
  if (contract.convolution.present()) {
    const std::int64_t taps = contract.convolution.taps_of_block();
    return taps == 0 ? std::nullopt : std::optional(GroupedBlocks{contract.blocks / taps, taps});
  }
  if (!contract.epilogue.lstm) return std::nullopt;
  const std::int64_t gates = contract.gates_of_cell();
  return GroupedBlocks{gates, contract.blocks / gates};
}
[[noreturn, gnu::cold]] void refuse_weight(std::string_view name, const TensorView& is,
                                           const OperandContract& wanted) {
  const auto [out, in] = wanted.block;
  std::string takes = fmt::format("[{}, {}, {}]", wanted.blocks, out, in);
  if (const auto grouped = grouped_blocks(wanted))
    takes += fmt::format(" or [{}, {}, {}, {}]", grouped->groups, grouped->blocks_of_group, out, in);
  if (wanted.blocks == 0) takes += ", or no such operand";
  refuse_shape(name, is, "dense " + takes);
}
[[noreturn, gnu::cold]] void refuse_packed(std::string_view name, const TensorView& is,
                                           std::int64_t elements) {
  refuse_strides(
      name, is,
      fmt::format("the {} elements that Kernel::pack made, dense, of rank 1 to {}", elements, kMaxRank));
}

}  // namespace

std::int64_t weight_elements(const OperandContract& contract) {
  return contract.blocks * contract.block.out * contract.block.in;
}

void check_blocks(std::string_view name, const TensorView& weight, DType type,
                  const OperandContract& contract) {
  if (weight.rank == 0 && contract.blocks == 0) return;
  if (weight.dtype != type) refuse_type(name, weight.dtype, type);
  const std::int64_t block = std::int64_t{contract.block.out} * contract.block.in;
  const auto grouped = weight.rank == 4 ? grouped_blocks(contract) : std::nullopt;
  const int last = grouped ? 3 : 2;  // axis
  const bool shaped = grouped
                          ? weight.shape[0] == grouped->groups && weight.shape[1] == grouped->blocks_of_group
                          : weight.rank == 3 && weight.shape[0] == contract.blocks;
  const bool blocks_dense =
      grouped ? (grouped->groups == 1 || weight.stride[0] == grouped->blocks_of_group * block) &&
                    (grouped->blocks_of_group == 1 || weight.stride[1] == block)
              : contract.blocks == 1 || weight.stride[0] == block;
  const bool of_blocks =
      shaped && weight.shape[last - 1] == contract.block.out && weight.shape[last] == contract.block.in;
  const bool dense = contract.blocks == 0 || (blocks_dense && weight.stride[last - 1] == contract.block.in &&
                                              weight.stride[last] == 1);
  if (!of_blocks || !dense) refuse_weight(name, weight, contract);
  if (contract.blocks == 0) return;
  check_address(name, weight.data, kWeightAlignment);
}

void check_packed(std::string_view name, const TensorView& w, const OperandContract& contract) {
  if (w.dtype != contract.dtype) refuse_type(name, w.dtype, contract.dtype);
  const std::int64_t all = weight_elements(contract);
  if (w.rank < 1 || w.rank > kMaxRank) refuse_packed(name, w, all);
  if (all == 0) {
    if (std::find(w.shape, w.shape + w.rank, 0) == w.shape + w.rank) refuse_packed(name, w, all);
    return;
  }
  std::int64_t elements = 1;
  for (std::int32_t axis = w.rank - 1; axis >= 0; --axis) {
    if (w.shape[axis] < 1 || w.shape[axis] > all / elements ||
        (w.shape[axis] > 1 && w.stride[axis] != elements))
      refuse_packed(name, w, all);
    elements *= w.shape[axis];
  }
  if (elements != all) refuse_packed(name, w, all);
  check_address(name, w.data, kWeightAlignment);
}

}  // namespace sparsekiln
