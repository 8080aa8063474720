#include "emulator/program/assembly.h"

#include <algorithm>
#include <array>

namespace sparsekiln::emulator {
namespace {

constexpr std::array kSpecialRegisters = std::to_array<std::string_view>({"%tid.x",
                                                                          "%tid.y",
                                                                          "%tid.z",
                                                                          "%ntid.x",
                                                                          "%ntid.y",
                                                                          "%ntid.z",
                                                                          "%ctaid.x",
                                                                          "%ctaid.y",
                                                                          "%ctaid.z",
                                                                          "%nctaid.x",
                                                                          "%nctaid.y",
                                                                          "%nctaid.z",
                                                                          "%laneid",
                                                                          "%warpid",
                                                                          "%nwarpid",
                                                                          "%smid",
                                                                          "%nsmid",
                                                                          "%lanemask_eq",
                                                                          "%lanemask_le",
                                                                          "%lanemask_lt",
                                                                          "%lanemask_ge",
                                                                          "%lanemask_gt",
                                                                          "%dynamic_smem_size",
                                                                          "%total_smem_size",
                                                                          "%aggr_smem_size",
                                                                          "%warpsize",
                                                                          "%clusterid.x",
                                                                          "%clusterid.y",
                                                                          "%clusterid.z",
                                                                          "%nclusterid.x",
                                                                          "%nclusterid.y",
                                                                          "%nclusterid.z",
                                                                          "%cluster_ctaid.x",
                                                                          "%cluster_ctaid.y",
                                                                          "%cluster_ctaid.z",
                                                                          "%cluster_nctaid.x",
                                                                          "%cluster_nctaid.y",
                                                                          "%cluster_nctaid.z",
                                                                          "%cluster_ctarank",
                                                                          "%cluster_nctarank"});

}  // namespace

int row_bytes(int bits) {
  switch (bits) {
    case 1:
      return 0;
    case 8:
    case 16:
      return 2;
    case 32:
      return 4;
    case 64:
      return 8;
    default:
      return -1;
  }
}

int special_register_bits(std::string_view name) {
  return std::find(kSpecialRegisters.begin(), kSpecialRegisters.end(), name) == kSpecialRegisters.end() ? 0
                                                                                                        : 32;
}

Assembly::Assembly(const ptx::Module& module, const ptx::Function& function, Layout layout)
    : module_(&module), function_(&function), layout_(std::move(layout)) {
  rows_.reserve(function.registers.size());
  for (const ptx::Register& register_ : function.registers)
    rows_.push_back({.bytes = std::max(row_bytes(ptx::bits(register_.type)), 0)});
}

std::uint32_t Assembly::temporary(int bytes) {
  rows_.push_back({.bytes = bytes});
  return static_cast<std::uint32_t>(rows_.size() - 1);
}

std::uint32_t Assembly::constant(int bytes, std::uint64_t value) {
  return add_fixed({.source = FixedRow::Source::constant, .bytes = bytes, .value = value});
}

std::uint32_t Assembly::special(int bytes, const std::string& name) {
  return add_fixed({.source = FixedRow::Source::special, .bytes = bytes, .special = name});
}

std::uint32_t Assembly::add_fixed(FixedRow row) {
  const auto [known, added] = known_.try_emplace({row.bytes, row.value, row.special}, 0);
  if (!added) return known->second;
  row.row = temporary(row.bytes);
  rows_.back().fixed = true;
  known->second = row.row;
  fixed_rows_.push_back(std::move(row));
  return known->second;
}

}  // namespace sparsekiln::emulator
