#include <sparsekiln/binary.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <set>
#include <string_view>
#include <tuple>

#include <sparsekiln/error.h>

#include "compiler/bytes.h"
#include "compiler/compression.h"
#include "compiler/computation_fields.h"
#include "compiler/edge_runs.h"
#include "compiler/launch_operands.h"

// The byte form, all fields little-endian, counts and texts preceded by a 64-bit length:
//   version:u32  target  plan  operands  entries  code  data  ptx  log  compiler  options  source:16 bytes
// Version 1 was the first, version 2 added a config's operand_a, version 3 its rows and
// merge, version 4 an entry's tables, version 5 the contract's math, version 6 all of a computation, version
// 7 an entry's launch attributes, and plan and computation as text, as identities have them, version 8 an
// entry's tensor maps, version 9 its batch tiles in flight and a module's data, version 10 its tiles of an
// image and its workspace for each of a batch, version 11 the order of a tensor map's rows, version 12 its
// rounding and the pair that it is of, version 13 an entry's workspace for sums, version 14 the overlap of
// its passes, version 15 the images of a tensor map, version 16 the steps between their positions. A reader
// knows one version: what stores Binaries has the compiler's digest in the key.

namespace sparsekiln {
namespace {

constexpr std::uint32_t kVersion = 18;

void put_number(ByteWriter& out, const auto& value) { out.put(value); }
template <std::size_t kCount>
void put_number(ByteWriter& out, const std::array<std::int32_t, kCount>& values) {
  for (const std::int32_t value : values) out.put(value);
}

void get_number(ByteReader& in, bool& value) { value = in.get_bool(); }
void get_number(ByteReader& in, Argument& value) { value = in.get_enum(kLastArgument); }
void get_number(ByteReader& in, DType& value) { value = in.get_enum(kLastDType); }
template <typename Integer>
void get_number(ByteReader& in, Integer& value) {
  value = in.get<Integer>();
}
template <std::size_t kCount>
void get_number(ByteReader& in, std::array<std::int32_t, kCount>& values) {
  for (std::int32_t& value : values) value = in.get<std::int32_t>();
}

/// What `numbers` gives of a struct, one after another.
void put_numbers(ByteWriter& out, const auto& numbers) {
  std::apply([&](const auto&... each) { (put_number(out, each), ...); }, numbers);
}
void get_numbers(ByteReader& in, const auto& numbers) {
  std::apply([&](auto&... each) { (get_number(in, each), ...); }, numbers);
}

// References to the numbers of a struct, which may be const, in the order of their byte form.
auto contract_numbers(auto& of) { return std::tie(of.in_features, of.out_features, of.blocks, of.packed); }
auto resource_numbers(auto& of) {
  return std::tie(of.registers, of.shared_bytes, of.stack_bytes, of.spill_load_bytes, of.spill_store_bytes,
                  of.constant_bytes, of.code_bytes);
}
auto tensor_map_numbers(auto& of) {
  return std::tie(of.operand, of.type, of.row_length, of.rows, of.stride, of.box_length, of.box_rows,
                  of.swizzle_bytes, of.interleave, of.to_tf32, of.l2_bytes, of.pair, of.image, of.box_image,
                  of.step_image);
}
/// Those between the passes and the arguments.
auto entry_numbers(auto& of) {
  return std::tie(of.workers, of.tile_n, of.rows_of_one, of.tiles_in_flight, of.threads,
                  of.dynamic_shared_bytes, of.attributes.cluster, of.attributes.overlaps_previous,
                  of.attributes.passes_overlap);
}
auto workspace_numbers(auto& of) {
  return std::tie(of.counter_bytes, of.bytes_per_tile, of.bytes_of_one, of.sums_of_one);
}

/// A text that `parse` reads and `write` gives back: one value has one byte form.
template <typename Parse, typename Write>
auto get_parsed(ByteReader& in, const Parse& parse, const Write& write) {
  const std::string text = in.get_text();
  const auto value = [&] {
    try {
      return parse(text);
    } catch (const Error& error) {
      in.fail(error.what());
    }
  }();
  if (write(value) != text) in.fail("a text that is not spelled as this version does");
  return value;
}

Plan get_plan(ByteReader& in) {
  return get_parsed(in, parse_plan, [](const Plan& plan) { return to_string(plan); });
}

void put(ByteWriter& out, const Computation& what) {
  for (const ComputationField& field : computation_fields()) out.put_text(field.text(what));
}

Computation get_computation(ByteReader& in) {
  Computation what;
  for (const ComputationField& field : computation_fields()) {
    const auto read = [&](std::string_view text) {
      Computation with = what;
      field.read(with, text);
      return with;
    };
    what = get_parsed(in, read, [&](const Computation& with) { return field.text(with); });
  }
  return what;
}

void put(ByteWriter& out, const OperandContract& operands) {
  put(out, static_cast<const Computation&>(operands));
  put_numbers(out, contract_numbers(operands));
}

OperandContract get_operands(ByteReader& in) {
  OperandContract operands;
  static_cast<Computation&>(operands) = get_computation(in);
  get_numbers(in, contract_numbers(operands));
  try {
    operands.edge_situations = count_edge_situations(operands);
  } catch (const Error& error) {
    in.fail(error.what());
  }
  return operands;
}

Resources get_resources(ByteReader& in) {
  Resources resources;
  const auto numbers = resource_numbers(resources);
  get_numbers(in, numbers);
  if (std::apply([](const auto... number) { return std::min<std::int64_t>({number...}); }, numbers) < 0)
    in.fail("less than no resources");
  return resources;
}

constexpr std::size_t kTensorMapBytes = 87;

/// What cuTensorMapEncodeTiled takes, as far as it does not depend on the launch.
bool can_be_encoded(const TensorMap& map) {
  constexpr std::int64_t kMostExtent = std::int64_t{1} << 32;
  constexpr std::int64_t kStrideEnd = std::int64_t{1} << 40;  // bytes
  constexpr std::int64_t kUnit = 16;                          // bytes
  constexpr std::int32_t kMostBox = 256;
  constexpr std::int32_t kMostStep = 8;
  const auto bytes = static_cast<std::int64_t>(size_of(map.type));
  const auto one_of = [](std::int32_t value, std::initializer_list<std::int32_t> values) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  const auto within = [](std::int64_t value, std::int64_t least, std::int64_t most) {
    return value >= least && value <= most;
  };
  const bool has_stride = map.stride != 0 || stride_of(map.operand).has_value();
  const bool strided = within(map.stride, 0, (kStrideEnd - 1) / bytes) && map.stride * bytes % kUnit == 0;
  const bool boxed = within(map.box_length, 1, kMostBox) && within(map.box_rows, 1, kMostBox) &&
                     map.box_length * bytes % kUnit == 0;
  const bool ordered = one_of(map.interleave, {0, 4, 8}) &&
                       (map.interleave == 0 || (map.stride != 0 && map.rows % (4 * map.interleave) == 0 &&
                                                map.box_rows % (4 * map.interleave) == 0));
  const bool of_images = map.image != std::array<std::int32_t, 3>{};
  std::int64_t positions = 1;  // of an image
  bool displaced = true;
  for (std::size_t i = 0; i < map.image.size(); ++i) {
    const std::int32_t step = map.step_image[i];
    displaced = displaced &&
                (of_images ? within(map.image[i], 1, std::numeric_limits<std::int32_t>::max()) &&
                                 within(step, 1, kMostStep) && within(map.box_image[i], 1, kMostBox / step)
                           : map.box_image[i] == 0 && step == 1);
    const std::int64_t extent = std::max(map.image[i], 1);
    positions = positions > kStrideEnd / extent ? kStrideEnd : positions * extent;
  }
  displaced =
      displaced && (!of_images || (map.interleave == 0 &&
                                   positions < kStrideEnd / bytes / std::max<std::int64_t>(map.stride, 1)));
  const bool of_pair = map.operand == Argument::pair_x || map.operand == Argument::pair_dy;
  return is_pointer(map.operand) && ordered && displaced &&
         within(map.pair, 0, of_pair ? kMostPairs - 1 : 0) && (!map.to_tf32 || map.type == DType::f32) &&
         within(map.row_length, 0, kMostExtent) && within(map.rows, 0, kMostExtent) && has_stride &&
         strided && boxed && one_of(map.swizzle_bytes, {0, 32, 64, 128}) &&
         one_of(map.l2_bytes, {0, 64, 128, 256}) &&
         (map.swizzle_bytes == 0 || map.box_length * bytes <= map.swizzle_bytes);
}

TensorMap get_tensor_map(ByteReader& in) {
  TensorMap map;
  get_numbers(in, tensor_map_numbers(map));
  if (!can_be_encoded(map)) in.fail("a tensor map that cannot be encoded");
  return map;
}

void put(ByteWriter& out, const Entry& entry) {
  out.put(entry.up_to);
  out.put(static_cast<std::uint64_t>(entry.passes.size()));
  for (const std::string& pass : entry.passes) out.put_text(pass);
  put_numbers(out, entry_numbers(entry));
  out.put(static_cast<std::uint64_t>(entry.arguments.size()));
  for (const Argument argument : entry.arguments) out.put(argument);
  out.put(static_cast<std::uint64_t>(entry.tensor_maps.size()));
  for (const TensorMap& map : entry.tensor_maps) put_numbers(out, tensor_map_numbers(map));
  put_numbers(out, workspace_numbers(entry.workspace));
  put_numbers(out, resource_numbers(entry.resources));
  out.put_bytes(entry.tables.bytes);
  for (const std::int64_t offset : entry.tables.offsets) out.put(offset);
  out.put(entry.tables.counters);
}

TableImage get_tables(ByteReader& in) {
  TableImage tables;
  const std::span<const std::byte> bytes = in.get_bytes();
  tables.bytes.assign(bytes.begin(), bytes.end());
  // The next image follows this one on the device: it must begin aligned, too.
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
  get_numbers(in, entry_numbers(entry));
  for (std::size_t arguments = in.get_count(1); arguments > 0; --arguments)
    entry.arguments.push_back(in.get_enum(kLastArgument));
  for (std::size_t maps = in.get_count(kTensorMapBytes); maps > 0; --maps)
    entry.tensor_maps.push_back(get_tensor_map(in));
  const auto taken = std::count(entry.arguments.begin(), entry.arguments.end(), Argument::tensor_map);
  if (taken != static_cast<std::ptrdiff_t>(entry.tensor_maps.size()) ||
      entry.tensor_maps.size() > kMostTensorMaps)
    in.fail("tensor maps that are not one for each argument");
  get_numbers(in, workspace_numbers(entry.workspace));
  entry.resources = get_resources(in);
  entry.tables = get_tables(in);
  if (!entry.takes_tables() && !entry.tables.bytes.empty()) in.fail("tables that no argument takes");
  const bool waits = entry.takes_tables() && entry.tables.bytes.empty();  // for a layout
  const bool counts_rows =
      std::all_of(entry.tensor_maps.begin(), entry.tensor_maps.end(),
                  [](const TensorMap& map) { return map.interleave == 0 || map.rows != 0; });
  if (!waits && !counts_rows) in.fail("a tensor map that interleaves rows without their number");
  constexpr std::int32_t kMostClustered = 16;    // CTAs along one dimension
  constexpr std::int32_t kMostThreads = 1024;    // of a CTA
  constexpr std::int32_t kMostShared = 1 << 20;  // no CTA has as much
  const auto& cluster = entry.attributes.cluster;
  const bool clusters_exist = std::all_of(
      cluster.begin(), cluster.end(), [](std::int32_t ctas) { return ctas >= 1 && ctas <= kMostClustered; });
  const bool usable =
      clusters_exist && entry.workers % cluster[0] == 0 && (waits ? entry.workers == 0 : entry.workers > 0) &&
      entry.tables.counters >= 0 && entry.tile_n >= 0 && entry.rows_of_one > 0 && entry.threads > 0 &&
      entry.threads <= kMostThreads && entry.dynamic_shared_bytes >= 0 &&
      entry.dynamic_shared_bytes <= kMostShared && entry.resources.shared_bytes <= kMostShared &&
      entry.tiles_in_flight > 0 && entry.tiles_in_flight <= kMostGridRows && !entry.passes.empty() &&
      entry.workspace.counter_bytes >= 0 && entry.workspace.bytes_per_tile >= 0 &&
      entry.workspace.bytes_of_one >= 0 && entry.workspace.sums_of_one >= 0;
  if (!usable) in.fail("an entry that cannot be launched");
  return entry;
}

bool is_variable_name(std::string_view text) {
  return !text.empty() && text.size() < 100 &&
         std::all_of(
             text.begin(), text.end(),
             [](char c) {
               return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
             });
}

/// Whether the jobs and the workspace of the largest launch can be counted in 64 bits, with all that a
/// launcher adds.
bool can_be_counted(const Entry& entry, std::int64_t n) {
  constexpr double kMost = 1e18;
  const auto most = static_cast<double>(n);
  const double tiles = entry.tile_n == 0 ? 1 : most * entry.rows_of_one / entry.tile_n + 1;
  const Workspace& workspace = entry.workspace;
  const double bytes =
      static_cast<double>(workspace.counter_bytes) + static_cast<double>(workspace.bytes_per_tile) * tiles +
      (static_cast<double>(workspace.bytes_of_one) + static_cast<double>(workspace.sums_of_one)) * most;
  return most * entry.rows_of_one < kMost && tiles * entry.workers < kMost && bytes < kMost;
}

/// What a launcher relies on: every n that the contract allows has an entry, and no number is absurd.
void check(const Binary& binary, const ByteReader& in) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48;  // of features and blocks
  const OperandContract& operands = binary.operands;
  const std::int64_t bound = operands.batch.bound();
  if (bound < 0 || operands.alignment < 1) in.fail("a contract that no launch could keep");
  for (const std::int64_t number : {operands.in_features, operands.out_features, operands.blocks})
    if (number < 0 || number > kMost) in.fail("a contract of matrices that cannot be");
  if (binary.entries.empty() || binary.entries.back().up_to < bound)
    in.fail("no entry for the largest batch");
  for (std::size_t i = 1; i < binary.entries.size(); ++i)
    if (binary.entries[i].up_to <= binary.entries[i - 1].up_to) in.fail("entries that do not ascend");
  for (const Entry& entry : binary.entries)
    if (!can_be_counted(entry, std::min(entry.up_to, bound))) in.fail("an entry of too large launches");
  std::set<std::string_view> symbols;
  for (const ModuleData& data : binary.data) {
    if (!is_variable_name(data.symbol) || data.bytes.empty()) in.fail("data of no variable");
    if (!symbols.insert(data.symbol).second) in.fail("data of one variable twice");
  }
}

}  // namespace

bool is_pointer(Argument argument) {
  if (argument >= Argument::vector) return true;
  const ArgumentPlace* const place = place_of(argument);
  return place != nullptr && place->is_pointer;
}

std::vector<std::byte> serialize(const Binary& binary) {
  ByteWriter out;
  out.put(kVersion);
  out.put(binary.target.kind);
  out.put_text(binary.target.arch);
  out.put(binary.target.workers);
  out.put_text(to_string(binary.plan));
  put(out, binary.operands);
  out.put(static_cast<std::uint64_t>(binary.entries.size()));
  for (const Entry& entry : binary.entries) put(out, entry);
  put_compressed(out, binary.code);
  out.put(static_cast<std::uint64_t>(binary.data.size()));
  for (const ModuleData& data : binary.data) {
    out.put_text(data.symbol);
    put_compressed(out, data.bytes);
  }
  put_compressed(out, std::as_bytes(std::span(binary.ptx)));
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
    binary.target.kind = in.get_enum(Target::kLastKind);
    binary.target.arch = in.get_text();
    binary.target.workers = in.get<std::int32_t>();
    binary.plan = get_plan(in);
    binary.operands = get_operands(in);
    for (std::size_t entries = in.get_count(8); entries > 0; --entries)
      binary.entries.push_back(get_entry(in));
    binary.code = get_compressed(in);
    for (std::size_t count = in.get_count(16); count > 0; --count) {
      ModuleData& data = binary.data.emplace_back();
      data.symbol = in.get_text();
      data.bytes = get_compressed(in);
    }
    const std::vector<std::byte> ptx = get_compressed(in);
    binary.ptx.assign(reinterpret_cast<const char*>(ptx.data()), ptx.size());
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
