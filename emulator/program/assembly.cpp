#include "emulator/program/assembly.h"

#include <algorithm>

namespace sparsekiln::emulator {
namespace {

/// Names that the parser knows.
constexpr std::string_view kNotImplemented[] = {
    "%clock",          "%clock64",        "%clock_hi", "%current_graph_exec", "%globaltimer",
    "%globaltimer_hi", "%globaltimer_lo", "%gridid",   "%is_explicit_cluster"};

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
  return std::find(std::begin(kNotImplemented), std::end(kNotImplemented), name) == std::end(kNotImplemented)
             ? 32
             : 0;
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
