#include "emulator/machine/tensor_map.h"

#include <doctest/doctest.h>

#include <bit>
#include <cstring>

using namespace sparsekiln::emulator;

namespace {

/// 100 × 40 halves, 256 bytes apart, in boxes of 8 rows of 64.
TensorMap matrix() {
  TensorMap map;
  map.address = 0x10000;
  map.rank = 2;
  map.element = TensorElement::f16;
  map.sizes = {100, 40};
  map.strides = {256};
  map.box = {64, 8};
  map.steps = {1, 1};
  return map;
}

std::string why_not(const TensorMapBytes& bytes) {
  std::string why;
  CHECK_FALSE(decode_tensor_map(bytes, why).has_value());
  return why;
}

/// The 16-byte chunk that lies at chunk `column` of the 128-byte line `row`, as the tables of PTX ISA 5.5.7
/// print them.
std::uint32_t chunk_at(Swizzle swizzle, std::uint32_t row, std::uint32_t column) {
  for (std::uint32_t chunk = 0; chunk < 8; ++chunk)
    if (swizzled(swizzle, row * 128 + chunk * 16) == row * 128 + column * 16) return chunk;
  return 8;
}

}  // namespace

TEST_CASE("swizzles are those of the tables of the ISA") {
  constexpr std::uint32_t kWithin128[8][8] = {
      {0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5}, {3, 2, 1, 0, 7, 6, 5, 4},
      {4, 5, 6, 7, 0, 1, 2, 3}, {5, 4, 7, 6, 1, 0, 3, 2}, {6, 7, 4, 5, 2, 3, 0, 1}, {7, 6, 5, 4, 3, 2, 1, 0}};
  constexpr std::uint32_t kWithin64[4][8] = {
      {0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5}, {3, 2, 1, 0, 7, 6, 5, 4}};
  constexpr std::uint32_t kWithin32[2][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}};
  for (std::uint32_t row = 0; row < 24; ++row)
    for (std::uint32_t column = 0; column < 8; ++column) {
      CHECK(chunk_at(Swizzle::within_128, row, column) == kWithin128[row % 8][column]);
      CHECK(chunk_at(Swizzle::within_64, row, column) == kWithin64[row % 4][column]);
      CHECK(chunk_at(Swizzle::within_32, row, column) == kWithin32[row % 2][column]);
      CHECK(chunk_at(Swizzle::none, row, column) == column);
    }
  CHECK(swizzled(Swizzle::within_128, 128 + 5) == 128 + 16 + 5);  // bytes stay in their chunk
}

TEST_CASE("a map survives its bytes, and damaged bytes are no map") {
  const TensorMap map = matrix();
  REQUIRE(problem_of(map).empty());
  TensorMapBytes bytes = encode(map);
  std::string why;
  CHECK(decode_tensor_map(bytes, why) == map);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    CAPTURE(at);
    bytes[at] ^= std::byte{0x40};
    CHECK(why_not(bytes) == "no tensor map is there");
    bytes[at] ^= std::byte{0x40};
  }
  CHECK(why_not({}) == "no tensor map is there");
}

TEST_CASE("parameters that the driver does not allow have a problem") {
  const auto problem = [](auto change) {
    TensorMap map = matrix();
    change(map);
    return problem_of(map);
  };
  const auto has = [&](auto change, const char* text) {
    const std::string found = problem(change);
    INFO(found, " | ", text);
    CHECK(found.find(text) != std::string::npos);
  };
  has([](TensorMap& map) { map.rank = 0; }, "0 dimensions");
  has([](TensorMap& map) { map.rank = 6; }, "6 dimensions");
  has([](TensorMap& map) { map.address += 8; }, "multiple of 16");
  has([](TensorMap& map) { map.sizes[1] = 0; }, "size of dimension 1");
  has([](TensorMap& map) { map.sizes[0] = (std::uint64_t{1} << 32) + 1; }, "size of dimension 0");
  has([](TensorMap& map) { map.strides[0] = 200; }, "stride of dimension 1");
  has([](TensorMap& map) { map.strides[0] = std::uint64_t{1} << 40; }, "below 2^40");
  has([](TensorMap& map) { map.box[1] = 0; }, "box of dimension 1");
  has([](TensorMap& map) { map.box[0] = 257; }, "box of dimension 0");
  has([](TensorMap& map) { map.box[0] = 4; }, "8 bytes in dimension 0");
  has([](TensorMap& map) { map.steps[1] = 9; }, "element stride of dimension 1");
  has([](TensorMap& map) { map.steps[1] = 0; }, "element stride of dimension 1");
  has([](TensorMap& map) { map.swizzle = Swizzle::within_64; }, "more than the 64");
  has([](TensorMap& map) { map.interleave = TensorInterleave::by_16_bytes; }, "at least 3");
  has(
      [](TensorMap& map) {
        map.element = TensorElement::u16;
        map.fill = TensorFill::nan;
      },
      "no NaN");
  CHECK(problem([](TensorMap& map) { map.swizzle = Swizzle::within_128; }).empty());
  CHECK(problem([](TensorMap& map) { map.steps[0] = 0; }).empty());
  CHECK(problem([](TensorMap& map) { map.sizes[0] = std::uint64_t{1} << 32; }).empty());
}

TEST_CASE("a map can be made field by field from zeros, as tensormap.replace does") {
  TensorMapBytes bytes{};
  const auto set = [&](TensorField field, std::uint32_t dimension, std::uint64_t value) {
    return replace_field(bytes, field, dimension, value);
  };
  CHECK(set(TensorField::global_address, 0, 0x10000).empty());
  CHECK(why_not(bytes) == "the tensor map was never given its rank");
  CHECK(set(TensorField::rank, 0, 1).empty());
  for (std::uint32_t d = 0; d < 2; ++d) {
    CHECK(set(TensorField::global_dim, d, matrix().sizes[d]).empty());
    CHECK(set(TensorField::box_dim, d, matrix().box[d]).empty());
    CHECK(set(TensorField::element_stride, d, 1).empty());
  }
  CHECK(set(TensorField::elemtype, 0, 6).empty());
  // Enumerations are zero before they are given a value.
  CHECK(why_not(bytes) == "the tensor map was never given its global_stride 0");
  CHECK(set(TensorField::global_stride, 0, 256).empty());
  std::string why;
  CHECK(decode_tensor_map(bytes, why) == matrix());

  CHECK(set(TensorField::box_dim, 0, 257) == "the value 257 is not 1 to 256");
  CHECK(set(TensorField::rank, 0, 5) == "the rank 6 is not 1 to 5");
  CHECK(set(TensorField::elemtype, 0, 13) == "the value 13 is not 0 to 12");
  CHECK(decode_tensor_map(bytes, why) == matrix());
  CHECK(set(TensorField::swizzle_mode, 0, 2).empty());
  CHECK(why_not(bytes).find("more than the 64 of the swizzle") != std::string::npos);
  bytes.fill(std::byte{1});
  CHECK(set(TensorField::rank, 0, 1) == "no tensor map is there");
}

TEST_CASE("a box inside has a run for each row, or one where rows are dense") {
  TensorMap map = matrix();
  CHECK(box_bytes(map) == 8 * 128);
  const std::vector<BoxRun> rows = runs_of_box(map, {16, 4});
  REQUIRE(rows.size() == 8);
  CHECK(rows[0] == BoxRun{0x10000 + 4 * 256 + 32, 0, 128});
  CHECK(rows[7] == BoxRun{0x10000 + 11 * 256 + 32, 7 * 128, 128});
  map.sizes = {64, 40};
  map.strides = {128};
  CHECK(runs_of_box(map, {0, 4}) == std::vector<BoxRun>{{0x10000 + 4 * 128, 0, 1024}});
}

TEST_CASE("what is outside of the tensor has no run") {
  const TensorMap map = matrix();
  const std::vector<BoxRun> left = runs_of_box(map, {-3, -6});
  REQUIRE(left.size() == 2);  // rows 0 and 1 are the box's 6 and 7
  CHECK(left[0] == BoxRun{0x10000, 6 * 128 + 6, 122});
  CHECK(left[1] == BoxRun{0x10000 + 256, 7 * 128 + 6, 122});
  const std::vector<BoxRun> right = runs_of_box(map, {99, 39});
  CHECK(right == std::vector<BoxRun>{{0x10000 + 39 * 256 + 198, 0, 2}});
  CHECK(runs_of_box(map, {100, 0}).empty());
  CHECK(runs_of_box(map, {0, 40}).empty());
  CHECK(runs_of_box(map, {-64, 0}).empty());
  CHECK(runs_of_box(map, {2147483647, 2147483647}).empty());
  CHECK(runs_of_box(map, {-2147483647 - 1, 0}).empty());
}

TEST_CASE("element strides skip rows and shrink the box") {
  TensorMap map = matrix();
  map.steps = {7, 3};  // that of dimension 0 is ignored
  CHECK(box_bytes(map) == 3 * 128);
  const std::vector<BoxRun> runs = runs_of_box(map, {0, 35});
  REQUIRE(runs.size() == 2);  // rows 35, 38, 41
  CHECK(runs[0] == BoxRun{0x10000 + 35 * 256, 0, 128});
  CHECK(runs[1] == BoxRun{0x10000 + 38 * 256, 128, 128});
}

TEST_CASE(
    "element strides begin with the first element of a box, also outside, and count the last part of a "
    "step") {
  TensorMap map = matrix();
  map.steps = {1, 2};
  map.box = {64, 7};
  CHECK(box_bytes(map) == 4 * 128);
  const std::vector<BoxRun> runs = runs_of_box(map, {0, -3});
  REQUIRE(runs.size() == 2);  // rows -3, -1, 1, 3
  CHECK(runs[0] == BoxRun{0x10000 + 256, 2 * 128, 128});
  CHECK(runs[1] == BoxRun{0x10000 + 3 * 256, 3 * 128, 128});
}

TEST_CASE("boxes of five dimensions are traversed with the first as the innermost") {
  TensorMap map;
  map.address = 0x20000;
  map.rank = 5;
  map.element = TensorElement::f32;
  map.sizes = {4, 3, 3, 3, 3};
  map.strides = {16, 64, 256, 1024};
  map.box = {4, 2, 2, 2, 2};
  map.steps = {1, 1, 1, 1, 1};
  REQUIRE(problem_of(map).empty());
  CHECK(box_bytes(map) == 256);
  const TensorCoordinates first{0, 1, 2, 0, 1};
  std::vector<BoxRun> expected;
  for (std::uint32_t i = 0; i < 16; ++i) {
    const std::uint32_t c[4] = {1 + (i & 1), 2 + (i >> 1 & 1), 0 + (i >> 2 & 1), 1 + (i >> 3)};
    if (c[1] > 2) continue;
    const std::uint64_t address = 0x20000 + c[0] * 16 + c[1] * 64 + c[2] * 256 + c[3] * 1024;
    if (i % 2 == 1)
      expected.back().bytes = 32;
    else
      expected.push_back({address, i * 16, 16});
  }
  CHECK(runs_of_box(map, first) == expected);
}

TEST_CASE("one dimension of bytes") {
  TensorMap map;
  map.address = 0x30000;
  map.rank = 1;
  map.sizes = {1000};
  map.box = {256};
  REQUIRE(problem_of(map).empty());
  CHECK(runs_of_box(map, {900}) == std::vector<BoxRun>{{0x30000 + 900, 0, 100}});
}

TEST_CASE("TFLOAT32 is rounded to the nearest on load, and FTZ types keep subnormal numbers") {
  CHECK(on_load(TensorElement::tf32, 0x3f800fff) == 0x3f800000);
  CHECK(on_load(TensorElement::tf32, 0x3f801000) == 0x3f800000);  // a tie, to even
  CHECK(on_load(TensorElement::tf32, 0x3f801001) == 0x3f802000);
  CHECK(on_load(TensorElement::tf32, 0x3f803000) == 0x3f804000);  // a tie, to even
  CHECK(on_load(TensorElement::tf32, 0xff7fffff) == 0xff800000);
  CHECK(on_load(TensorElement::tf32, 0x7f800000) == 0x7f800000);
  CHECK((on_load(TensorElement::tf32, 0x7f800001) & 0x7fffff) != 0);
  CHECK(on_load(TensorElement::tf32, 0x00003000) == 0x00004000);
  CHECK(on_load(TensorElement::tf32_ftz, 0x80003000) == 0x80004000);
  CHECK(on_load(TensorElement::f32_ftz, 0x807fffff) == 0x807fffff);
  CHECK(on_load(TensorElement::f32_ftz, 0x00800001) == 0x00800001);
  CHECK(on_load(TensorElement::f32, 0x00000001) == 0x00000001);
}

TEST_CASE("what fills the outside is zero or a NaN of the element's type") {
  TensorMap map = matrix();
  CHECK(fill_bits(map) == 0);
  map.fill = TensorFill::nan;
  CHECK(fill_bits(map) == 0x7fff);
  map.element = TensorElement::f32;
  CHECK(fill_bits(map) == 0x7fffffff);
  map.element = TensorElement::f64;
  CHECK(fill_bits(map) == 0x7fffffffffffffff);
}
