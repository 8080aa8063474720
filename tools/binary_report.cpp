#include "tools/binary_report.h"

#include <fmt/format.h>
#include <sparsekiln/printable.h>

#include "compiler/backend.h"

namespace sparsekiln::tools {

Json describe_entries(const Binary& binary) {
  Json entries = Json::array();
  for (const Entry& entry : binary.entries) {
    const Resources& resources = entry.resources;
    entries.push_back({{"up_to", entry.up_to},
                       {"passes", entry.passes},
                       {"workers", entry.workers},
                       {"tile_n", entry.tile_n},
                       {"threads", entry.threads},
                       {"registers", resources.registers},
                       {"shared_bytes", resources.shared_bytes},
                       {"dynamic_shared_bytes", entry.dynamic_shared_bytes},
                       {"stack_bytes", resources.stack_bytes},
                       {"spill_load_bytes", resources.spill_load_bytes},
                       {"spill_store_bytes", resources.spill_store_bytes},
                       {"constant_bytes", resources.constant_bytes},
                       {"code_bytes", resources.code_bytes},
                       {"table_bytes", entry.tables.bytes.size()},
                       {"workspace_counter_bytes", entry.workspace.counter_bytes},
                       {"workspace_bytes_per_tile", entry.workspace.bytes_per_tile},
                       {"workspace_bytes_of_one", entry.workspace.bytes_of_one},
                       {"workspace_sums_of_one", entry.workspace.sums_of_one}});
  }
  return entries;
}

std::int64_t data_bytes(const Binary& binary) {
  std::int64_t bytes = 0;
  for (const ModuleData& data : binary.data) bytes += static_cast<std::int64_t>(data.bytes.size());
  return bytes;
}

std::string data_file(std::string_view kernel, const ModuleData& data) {
  return fmt::format("{}.{}.bin", kernel, data.symbol);
}

Json describe_data(const Binary& binary) {
  Json all = Json::object();
  for (const ModuleData& data : binary.data) all[data.symbol] = data.bytes.size();
  return all;
}

Json describe_binary(const Binary& binary, From from, const Digest& key, double compile_ms) {
  const OperandContract& operands = binary.operands;
  return {{"operation", name(operands.operation)},
          {"in_features", operands.in_features},
          {"out_features", operands.out_features},
          {"blocks", operands.blocks},
          {"block", to_string(operands.block)},
          {"batch", to_string(operands.batch)},
          {"convolution", to_string(operands.convolution)},
          {"dtype", name(operands.dtype)},
          {"out_dtype", name(operands.out_dtype)},
          {"target", binary.target.to_string()},
          {"from", name(from)},
          {"compile_ms", compile_ms},
          {"key", key.hex()},
          {"config", to_string(binary.plan)},
          {"packed", operands.packed},
          {"attached", !binary.entries.empty() && binary.entries.front().takes_tables()},
          {"resources", describe_entries(binary)},
          {"code_bytes", binary.code.size()},
          {"data", describe_data(binary)},
          {"ptx_bytes", binary.ptx.size()},
          {"compiler", binary.compiler},
          {"compiler_options", binary.options},
          {"source", binary.source.hex()},
          {"log", binary.log}};
}

std::string summarize_binary(const Binary& binary, From from, const Digest& key, double compile_ms) {
  const OperandContract& operands = binary.operands;
  const bool backward = operands.operation == Operation::grad_input;
  const Convolution& convolution = operands.convolution;
  const std::int32_t taps = convolution.present() ? convolution.taps() : 1;
  std::string text =
      fmt::format("{} {} → {}, {} blocks of {}{}, batch {}, {}\n", name(operands.operation),
                  backward ? operands.out_features : operands.in_features,
                  backward ? operands.in_features : operands.out_features, operands.blocks / taps,
                  to_string(operands.block), convolution.present() ? fmt::format(" and {} taps", taps) : "",
                  to_string(operands.batch), name(operands.dtype));
  if (convolution.present()) text += fmt::format("convolution {}\n", to_string(convolution));
  text += fmt::format("target {}, from {} in {:.3f} ms, {}\nkey {}\nconfig {}\n", binary.target.to_string(),
                      name(from), compile_ms, printable(binary.compiler), key.hex(), to_string(binary.plan));
  for (const Entry& entry : binary.entries) {
    text += fmt::format("n ≤ {}: {}", entry.up_to, backend_of(binary.target).describe(binary, entry));
    if (entry.takes_tables()) text += fmt::format(", {} bytes of attached tables", entry.tables.bytes.size());
    text += "\n";
  }
  if (!binary.data.empty()) text += fmt::format("{} bytes of tables beside the code\n", data_bytes(binary));
  return text;
}

}  // namespace sparsekiln::tools
