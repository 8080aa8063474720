#include <sparsekiln/binary.h>

#include <algorithm>
#include <random>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

namespace sparsekiln {
namespace {

Binary sample() {
  Binary binary;
  binary.target = {Target::Kind::cuda, "sm_90", 132};
  binary.plan = {{8, {.tile_n = 8}}, {64, {.tile_n = 64, .table = TableForm::global, .packed = true}}};
  Computation what;
  what.operation = Operation::grad_weight;
  what.block = {16, 8};
  what.batch = Batch::up_to(64);
  what.dtype = DType::bf16;
  what.math = Math::tf32;
  what.order = ActivationOrder::feature_major;
  what.strict_absent = true;
  what.epilogue = {.scale = true, .activation = Activation::silu, .residual = true};
  what.derivative = Activation::gelu;
  what.block_scale_gradient = true;
  what.alignment = 4;
  binary.operands = {what, 64, 96, 5, true};
  Entry entry;
  entry.up_to = 64;
  entry.passes = {"first", "second"};
  entry.workers = 6;
  entry.attributes = {.cluster = {2, 1}, .overlaps_previous = true};
  entry.arguments = {Argument::x, Argument::tensor_map, Argument::y_stride, Argument::tensor_map};
  entry.tensor_maps = {{.operand = Argument::x,
                        .type = DType::bf16,
                        .row_length = 64,
                        .box_length = 32,
                        .box_rows = 16,
                        .swizzle_bytes = 64},
                       {.operand = Argument::w,
                        .type = DType::f32,
                        .row_length = 8,
                        .rows = 80,
                        .stride = 8,
                        .box_length = 8,
                        .box_rows = 256,
                        .l2_bytes = 256}};
  entry.workspace = {64, 4096, 32, 128};
  entry.resources.registers = 40;
  binary.entries = {entry, entry};
  binary.entries[0].up_to = 8;
  binary.code = {std::byte{1}, std::byte{2}, std::byte{3}};
  binary.data = {{"steps_0", {std::byte{4}, std::byte{5}}}, {"rows_0", {std::byte{6}}}};
  binary.ptx = ".version 9.0";
  binary.log = "ptxas info";
  binary.compiler = "NVRTC 13.0";
  binary.options = "--gpu-architecture=sm_90";
  binary.source = Digest::of("source");
  return binary;
}

TEST_CASE("a binary survives its byte form") { CHECK(deserialize(serialize(sample())) == sample()); }

TEST_CASE("the same binary has the same bytes") { CHECK(serialize(sample()) == serialize(sample())); }

TEST_CASE("every truncation is refused") {
  const std::vector<std::byte> bytes = serialize(sample());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS((void)deserialize(std::span(bytes).first(size)), Error);
  }
}

TEST_CASE("a flipped byte is refused or changes nothing but what it says, and never crashes") {
  const std::vector<std::byte> bytes = serialize(sample());
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::vector<std::byte> damaged = bytes;
    damaged[at] ^= std::byte{0xff};
    try {
      const Binary read = deserialize(damaged);
      CHECK_FALSE(read == sample());
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::cache);
    }
  }
}

TEST_CASE("clusters that no grid has are refused") {
  Binary binary = sample();
  for (const std::int32_t ctas : {0, -1, 17}) {
    CAPTURE(ctas);
    binary.entries.back().attributes.cluster = {1, ctas};
    CHECK_THROWS_AS((void)deserialize(serialize(binary)), Error);
  }
  binary.entries.back().attributes.cluster = {2, 1};
  binary.entries.back().workers = 3;  // one would have no partner
  CHECK_THROWS_AS((void)deserialize(serialize(binary)), Error);
}

TEST_CASE("a tensor map that interleaves rows may lack their number for as long as there is no layout") {
  Binary binary = sample();
  Entry& entry = binary.entries.back();
  entry.tensor_maps.back().interleave = 4;
  entry.tensor_maps.back().rows = 0;
  CHECK_THROWS_AS((void)deserialize(serialize(binary)), Error);
  entry.arguments.push_back(Argument::tables);
  entry.workers = 0;
  CHECK(deserialize(serialize(binary)) == binary);
}

TEST_CASE("tensor maps that no driver encodes are refused") {
  const auto refused = [](auto change) {
    Binary binary = sample();
    change(binary.entries.back().tensor_maps.back());
    CHECK_THROWS_AS((void)deserialize(serialize(binary)), Error);
  };
  refused([](TensorMap& map) { map.operand = Argument::n; });
  refused([](TensorMap& map) { map.stride = 0; });  // w has no stride argument
  for (const std::int64_t extent : {std::int64_t{-1}, (std::int64_t{1} << 32) + 1}) {
    refused([&](TensorMap& map) { map.row_length = extent; });
    refused([&](TensorMap& map) { map.rows = extent; });
  }
  for (const std::int64_t stride : {std::int64_t{-8}, std::int64_t{9}, std::int64_t{1} << 38})
    refused([&](TensorMap& map) { map.stride = stride; });
  for (const std::int32_t box : {-4, 0, 7, 260}) refused([&](TensorMap& map) { map.box_length = box; });
  for (const std::int32_t box : {-1, 0, 257}) refused([&](TensorMap& map) { map.box_rows = box; });
  refused([](TensorMap& map) { map.swizzle_bytes = 16; });
  refused([](TensorMap& map) { map.interleave = 2; });
  refused([](TensorMap& map) { map.interleave = 8, map.box_rows = 48; });
  refused([](TensorMap& map) { map.l2_bytes = 512; });
  refused([](TensorMap& map) { map.pair = 1; });  // w is of no pair
  for (const std::int32_t pair : {-1, static_cast<std::int32_t>(kMostPairs)})
    refused([&](TensorMap& map) { map.operand = Argument::pair_x, map.pair = pair; });
  Binary paired = sample();
  paired.entries.back().tensor_maps.back().operand = Argument::pair_dy;
  paired.entries.back().tensor_maps.back().pair = kMostPairs - 1;
  CHECK(deserialize(serialize(paired)) == paired);
  Binary rounded = sample();
  rounded.entries.back().tensor_maps.back().to_tf32 = true;
  CHECK(deserialize(serialize(rounded)) == rounded);
  rounded.entries.back().tensor_maps.front().to_tf32 = true;  // of bf16
  CHECK_THROWS_AS((void)deserialize(serialize(rounded)), Error);
  const auto images = [](TensorMap& map) {
    map.image = {1, 40, 30};
    map.box_image = {1, 30, 10};
    map.box_rows = 1;
  };
  Binary displaced = sample();
  images(displaced.entries.back().tensor_maps.back());
  CHECK(deserialize(serialize(displaced)) == displaced);
  displaced.entries.back().tensor_maps.back().step_image = {1, 8, 2};
  CHECK(deserialize(serialize(displaced)) == displaced);
  refused([](TensorMap& map) { map.box_image = {1, 30, 10}; });  // of a matrix
  refused([](TensorMap& map) { map.step_image = {1, 1, 2}; });   // the same
  for (const std::int32_t step : {-1, 0, 9})
    refused([&](TensorMap& map) { images(map), map.step_image[2] = step; });
  refused([&](TensorMap& map) { images(map), map.box_image[1] = 33, map.step_image[1] = 8; });  // of 264
  for (const std::int32_t box : {-1, 0, 257})
    refused([&](TensorMap& map) { images(map), map.box_image[1] = box; });
  for (const std::int32_t extent : {-1, 0})
    refused([&](TensorMap& map) { images(map), map.image[2] = extent; });
  refused([&](TensorMap& map) { images(map), map.image = {1 << 20, 1 << 20, 1 << 20}; });
  refused([&](TensorMap& map) { images(map), map.interleave = 8, map.box_rows = 32; });
  Binary wide = sample();
  wide.entries.back().tensor_maps.front().swizzle_bytes = 32;
  CHECK_THROWS_AS((void)deserialize(serialize(wide)), Error);
}

TEST_CASE("an entry has a tensor map for each argument that takes one, and not too many") {
  Binary fewer = sample();
  fewer.entries.back().tensor_maps.pop_back();
  CHECK_THROWS_AS((void)deserialize(serialize(fewer)), Error);
  Binary more = sample();
  more.entries.back().arguments.pop_back();
  CHECK_THROWS_AS((void)deserialize(serialize(more)), Error);
  Binary most = sample();
  Entry& entry = most.entries.back();
  while (entry.tensor_maps.size() < kMostTensorMaps) {
    entry.tensor_maps.push_back(entry.tensor_maps.front());
    entry.arguments.push_back(Argument::tensor_map);
  }
  CHECK(deserialize(serialize(most)) == most);
  entry.tensor_maps.push_back(entry.tensor_maps.front());
  entry.arguments.push_back(Argument::tensor_map);
  CHECK_THROWS_AS((void)deserialize(serialize(most)), Error);
}

TEST_CASE("data that belongs to no variable, or to one twice, is refused") {
  const auto refused = [](const auto& change) {
    Binary binary = sample();
    change(binary.data);
    CHECK_THROWS_AS((void)deserialize(serialize(binary)), Error);
  };
  refused([](std::vector<ModuleData>& data) { data[1].symbol = "steps_0"; });
  refused([](std::vector<ModuleData>& data) { data[1].symbol = ""; });
  refused([](std::vector<ModuleData>& data) { data[1].symbol = "../rows"; });
  refused([](std::vector<ModuleData>& data) { data[1].bytes.clear(); });
}

TEST_CASE("entries that do not serve every batch of the contract are refused") {
  Binary short_of = sample();
  short_of.operands.batch = Batch::up_to(65);
  CHECK_THROWS_AS((void)deserialize(serialize(short_of)), Error);
  Binary unordered = sample();
  unordered.entries[0].up_to = 64;
  CHECK_THROWS_AS((void)deserialize(serialize(unordered)), Error);
}

Binary attached_sample() {
  Binary binary = sample();
  for (Entry& entry : binary.entries) {
    entry.arguments.push_back(Argument::tables);
    entry.tables = {std::vector<std::byte>(64, std::byte{7}), {0, 16, 16, 32, 48, 48, 64}, 3};
  }
  return binary;
}

TEST_CASE("an attached layout survives its byte form, and so does code that waits for one") {
  CHECK(deserialize(serialize(attached_sample())) == attached_sample());
  Binary shared = attached_sample();
  for (Entry& entry : shared.entries) {
    entry.workers = 0;
    entry.tables = {};
  }
  CHECK(shared.lacks_layout());
  CHECK(deserialize(serialize(shared)) == shared);
}

TEST_CASE("tables that lie outside of their image, or that no entry takes, are refused") {
  for (const std::int64_t offset : {-16, 8, 80}) {
    CAPTURE(offset);
    Binary outside = attached_sample();
    outside.entries[1].tables.offsets[4] = offset;
    CHECK_THROWS_AS((void)deserialize(serialize(outside)), Error);
  }
  Binary descending = attached_sample();
  std::swap(descending.entries[1].tables.offsets[0], descending.entries[1].tables.offsets[6]);
  CHECK_THROWS_AS((void)deserialize(serialize(descending)), Error);
  Binary cut_off = attached_sample();
  cut_off.entries[1].tables.bytes.resize(cut_off.entries[1].tables.bytes.size() + 4);
  CHECK_THROWS_AS((void)deserialize(serialize(cut_off)), Error);
  Binary untaken = attached_sample();
  untaken.entries[0].arguments.pop_back();
  CHECK_THROWS_AS((void)deserialize(serialize(untaken)), Error);
}

TEST_CASE("an entry without workers is refused, unless it waits for a layout") {
  Binary baked = sample();
  baked.entries[0].workers = 0;
  CHECK_THROWS_AS((void)deserialize(serialize(baked)), Error);
  Binary attached = attached_sample();
  attached.entries[0].workers = 0;
  CHECK_THROWS_AS((void)deserialize(serialize(attached)), Error);
}

TEST_CASE("the workspace of n is the most that a batch of n or fewer takes, whichever entry serves it") {
  std::mt19937 random(1);
  const auto below = [&](std::uint32_t end) { return static_cast<std::int32_t>(random() % end); };
  int falling = 0;  // entries that take less than one before them
  for (int drawn = 0; drawn < 100; ++drawn) {
    CAPTURE(drawn);
    Binary binary = sample();
    binary.entries.assign(static_cast<std::size_t>(1 + below(5)), binary.entries.front());
    std::int64_t up_to = 0;
    for (Entry& entry : binary.entries) {
      entry.up_to = up_to += 1 + below(100);
      entry.tile_n = below(4) == 0 ? 0 : 1 << below(8);
      entry.workspace = {64 * below(3), below(3) == 0 ? 0 : below(5000), 0, 64 * below(3)};
    }
    std::int64_t most = 0;
    std::size_t entry = 0;
    for (std::int64_t n = 0; n <= up_to; ++n) {
      CAPTURE(n);
      if (binary.entries[entry].up_to < n) ++entry;
      const std::int64_t taken = binary.entries[entry].workspace_bytes(n);
      falling += taken < most;
      most = std::max(most, taken);
      REQUIRE(binary.workspace_bytes(n) == most);
    }
  }
  CHECK(falling > 0);  // else this tests little
}

TEST_CASE("bytes after the end are refused") {
  std::vector<std::byte> bytes = serialize(sample());
  bytes.push_back(std::byte{0});
  CHECK_THROWS_AS((void)deserialize(bytes), Error);
}

}  // namespace
}  // namespace sparsekiln
