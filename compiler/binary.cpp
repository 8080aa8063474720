#include <sparsekiln/binary.h>

#include <algorithm>
#include <initializer_list>

#include <sparsekiln/error.h>

#include "compiler/activation.h"
#include "compiler/bytes.h"

// The byte form, all fields little-endian, counts and texts preceded by a 64-bit length:
//   version:u32  target  plan  operands  entries  code  ptx  log  compiler  options  source:16 bytes
// Version 1 was the first, version 2 added a config's operand_a, version 3 its rows and
// merge, version 4 an entry's tables, version 5 the contract's math, version 6 all of a computation. A reader
// knows one version: whoever stores Binaries has the compiler's digest in the key.

namespace sparsekiln {
namespace {

constexpr std::uint32_t kVersion = 6;

void put(ByteWriter& out, const Config& config) {
  out.put(config.variant);
  out.put(config.tile_n);
  out.put(config.tile_out);
  out.put(config.stages);
  out.put(config.warps);
  out.put(config.split);
  out.put(config.rows);
  out.put(config.merge);
  out.put(config.table);
  out.put(config.operand_a);
  out.put(static_cast<std::uint8_t>(config.packed));
}

Config get_config(ByteReader& in) {
  Config config;
  config.variant = in.get_enum(Variant::vector);
  config.tile_n = in.get<std::int32_t>();
  config.tile_out = in.get<std::int32_t>();
  config.stages = in.get<std::int32_t>();
  config.warps = in.get<std::int32_t>();
  config.split = in.get<std::int32_t>();
  config.rows = in.get<std::int32_t>();
  config.merge = in.get<std::int32_t>();
  config.table = in.get_enum(TableForm::attached);
  config.operand_a = in.get_enum(OperandA::w);
  config.packed = in.get_bool();
  return config;
}

void put_flags(ByteWriter& out, std::initializer_list<bool> flags) {
  for (const bool flag : flags) out.put(static_cast<std::uint8_t>(flag));
}

void put(ByteWriter& out, const Computation& what) {
  out.put(what.operation);
  out.put(what.block.out);
  out.put(what.block.in);
  out.put(what.batch.bound());
  put_flags(out, {what.batch.dynamic()});
  out.put(what.dtype);
  out.put(what.out_dtype);
  out.put(what.math);
  out.put(what.order);
  out.put(what.epilogue.activation);
  out.put(what.derivative);
  put_flags(out, {what.strict_absent, what.epilogue.scale, what.epilogue.bias, what.epilogue.glu,
                  what.epilogue.residual, what.gates, what.bias_gradient, what.gate_gradient});
  out.put(what.alignment);
}

Computation get_computation(ByteReader& in) {
  Computation what;
  what.operation = in.get_enum(Operation::grad_weight);
  what.block.out = in.get<std::int32_t>();
  what.block.in = in.get<std::int32_t>();
  const auto bound = in.get<std::int64_t>();
  what.batch = in.get_bool() ? Batch::up_to(bound) : Batch(bound);
  what.dtype = in.get_enum(kLastDType);
  what.out_dtype = in.get_enum(kLastDType);
  what.math = in.get_enum(Math::tf32);
  what.order = in.get_enum(ActivationOrder::feature_major);
  what.epilogue.activation = in.get_enum(activation_rows().back().value);
  what.derivative = in.get_enum(activation_rows().back().value);
  for (bool* const flag : {&what.strict_absent, &what.epilogue.scale, &what.epilogue.bias, &what.epilogue.glu,
                           &what.epilogue.residual, &what.gates, &what.bias_gradient, &what.gate_gradient})
    *flag = in.get_bool();
  what.alignment = in.get<std::int32_t>();
  return what;
}

void put(ByteWriter& out, const OperandContract& operands) {
  put(out, static_cast<const Computation&>(operands));
  out.put(operands.in_features);
  out.put(operands.out_features);
  out.put(operands.blocks);
  put_flags(out, {operands.packed});
}

OperandContract get_operands(ByteReader& in) {
  OperandContract operands;
  static_cast<Computation&>(operands) = get_computation(in);
  operands.in_features = in.get<std::int64_t>();
  operands.out_features = in.get<std::int64_t>();
  operands.blocks = in.get<std::int64_t>();
  operands.packed = in.get_bool();
  return operands;
}

void put(ByteWriter& out, const Resources& resources) {
  out.put(resources.registers);
  out.put(resources.shared_bytes);
  out.put(resources.stack_bytes);
  out.put(resources.spill_load_bytes);
  out.put(resources.spill_store_bytes);
  out.put(resources.constant_bytes);
  out.put(resources.code_bytes);
}

Resources get_resources(ByteReader& in) {
  Resources resources;
  resources.registers = in.get<std::int32_t>();
  resources.shared_bytes = in.get<std::int32_t>();
  resources.stack_bytes = in.get<std::int32_t>();
  resources.spill_load_bytes = in.get<std::int32_t>();
  resources.spill_store_bytes = in.get<std::int32_t>();
  resources.constant_bytes = in.get<std::int32_t>();
  resources.code_bytes = in.get<std::int64_t>();
  return resources;
}

void put(ByteWriter& out, const Entry& entry) {
  out.put(entry.up_to);
  out.put(static_cast<std::uint64_t>(entry.passes.size()));
  for (const std::string& pass : entry.passes) out.put_text(pass);
  out.put(entry.workers);
  out.put(entry.tile_n);
  out.put(entry.threads);
  out.put(entry.dynamic_shared_bytes);
  out.put(static_cast<std::uint64_t>(entry.arguments.size()));
  for (const Argument argument : entry.arguments) out.put(argument);
  out.put(entry.workspace.counter_bytes);
  out.put(entry.workspace.bytes_per_tile);
  put(out, entry.resources);
  out.put_bytes(entry.tables.bytes);
  for (const std::int64_t offset : entry.tables.offsets) out.put(offset);
  out.put(entry.tables.counters);
}

TableImage get_tables(ByteReader& in) {
  TableImage tables;
  const std::span<const std::byte> bytes = in.get_bytes();
  tables.bytes.assign(bytes.begin(), bytes.end());
  // The next image lies behind this one on the device: it must begin aligned, too.
  if (bytes.size() % TableImage::kAlignment != 0) in.fail("an image of tables that is cut off");
  std::int64_t least = 0;
  for (std::int64_t& offset : tables.offsets) {
    offset = in.get<std::int64_t>();
    if (offset < least || offset > static_cast<std::int64_t>(bytes.size()) ||
        offset % TableImage::kAlignment != 0)
      in.fail("a table outside of its image");
    least = offset;
  }
  tables.counters = in.get<std::int32_t>();
  return tables;
}

Entry get_entry(ByteReader& in) {
  Entry entry;
  entry.up_to = in.get<std::int64_t>();
  for (std::size_t passes = in.get_count(8); passes > 0; --passes) entry.passes.push_back(in.get_text());
  entry.workers = in.get<std::int32_t>();
  entry.tile_n = in.get<std::int32_t>();
  entry.threads = in.get<std::int32_t>();
  entry.dynamic_shared_bytes = in.get<std::int32_t>();
  for (std::size_t arguments = in.get_count(1); arguments > 0; --arguments)
    entry.arguments.push_back(in.get_enum(Argument::tables));
  entry.workspace.counter_bytes = in.get<std::int64_t>();
  entry.workspace.bytes_per_tile = in.get<std::int64_t>();
  entry.resources = get_resources(in);
  entry.tables = get_tables(in);
  if (!entry.takes_tables() && !entry.tables.bytes.empty()) in.fail("tables that nobody takes");
  const bool waits = entry.takes_tables() && entry.tables.bytes.empty();  // for a layout
  const bool usable = (waits ? entry.workers == 0 : entry.workers > 0) && entry.tables.counters >= 0 &&
                      entry.tile_n >= 0 && entry.threads > 0 && !entry.passes.empty() &&
                      entry.workspace.counter_bytes >= 0 && entry.workspace.bytes_per_tile >= 0;
  if (!usable) in.fail("an entry that cannot be launched");
  return entry;
}

/// What a launcher relies on: every n that the contract allows has an entry, and no number is absurd.
void check(const Binary& binary, const ByteReader& in) {
  const std::int64_t bound = binary.operands.batch.bound();
  if (bound < 0 || binary.operands.alignment < 1) in.fail("a contract that no launch could keep");
  if (binary.entries.empty() || binary.entries.back().up_to < bound)
    in.fail("no entry for the largest batch");
  for (std::size_t i = 1; i < binary.entries.size(); ++i)
    if (binary.entries[i].up_to <= binary.entries[i - 1].up_to) in.fail("entries that do not ascend");
}

}  // namespace

std::vector<std::byte> serialize(const Binary& binary) {
  ByteWriter out;
  out.put(kVersion);
  out.put(binary.target.kind);
  out.put_text(binary.target.arch);
  out.put(binary.target.workers);
  out.put(static_cast<std::uint64_t>(binary.plan.size()));
  for (const RangedConfig& range : binary.plan) {
    out.put(range.up_to);
    put(out, range.config);
  }
  put(out, binary.operands);
  out.put(static_cast<std::uint64_t>(binary.entries.size()));
  for (const Entry& entry : binary.entries) put(out, entry);
  out.put_bytes(binary.code);
  out.put_text(binary.ptx);
  out.put_text(binary.log);
  out.put_text(binary.compiler);
  out.put_text(binary.options);
  for (const std::uint8_t byte : binary.source.bytes) out.put(byte);
  return std::move(out).take();
}

Binary deserialize(std::span<const std::byte> bytes) {
  try {
    ByteReader in(bytes);
    Binary binary;
    if (in.get<std::uint32_t>() != kVersion) in.fail("another version");
    binary.target.kind = in.get_enum(Target::Kind::cuda);
    binary.target.arch = in.get_text();
    binary.target.workers = in.get<std::int32_t>();
    for (std::size_t ranges = in.get_count(8); ranges > 0; --ranges) {
      const auto up_to = in.get<std::int64_t>();
      binary.plan.push_back({up_to, get_config(in)});
    }
    binary.operands = get_operands(in);
    for (std::size_t entries = in.get_count(8); entries > 0; --entries)
      binary.entries.push_back(get_entry(in));
    const std::span<const std::byte> code = in.get_bytes();
    binary.code.assign(code.begin(), code.end());
    binary.ptx = in.get_text();
    binary.log = in.get_text();
    binary.compiler = in.get_text();
    binary.options = in.get_text();
    for (std::uint8_t& byte : binary.source.bytes) byte = in.get<std::uint8_t>();
    in.expect_end();
    check(binary, in);
    return binary;
  } catch (const ByteReader::Bad& bad) {
    throw Error(ErrorKind::cache, std::string("a stored binary is damaged: ") + bad.what());
  }
}

}  // namespace sparsekiln
