#include <doctest/doctest.h>

#include <cstring>

#include "bulk_kernel.h"

using namespace sparsekiln::emulator;

namespace {

using Words = std::vector<std::uint32_t>;

constexpr const char* kHandOver = "fence.proxy.async.shared::cta;\nbar.sync 0;\n";
constexpr const char* kMeet = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";
constexpr const char* kFinish = "@%p8 cp.async.bulk.commit_group;\n@%p8 cp.async.bulk.wait_group 0;\n";

/// Loads the box at these coordinates and copies it out.
BulkKernel loads(const TensorMap& map, const std::string& coordinates) {
  const std::uint32_t bytes = box_bytes(map);
  BulkKernel kernel(BulkKernel::expect(bytes) + "@%p8 cp.async.bulk.tensor." + std::to_string(map.rank) +
                    "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r9], [%rd2, {" +
                    coordinates + "}], [%r8];\n" + BulkKernel::wait() + BulkKernel::copy_out(bytes / 4));
  kernel.map = map;
  return kernel;
}

/// Copies numbers into shared memory and stores them as the box at these coordinates, or as `operation` says.
BulkKernel stores(const TensorMap& map, const std::string& coordinates, const std::string& operation = {}) {
  const std::string opcode = operation.empty() ? "cp.async.bulk.tensor." : "cp.reduce.async.bulk.tensor.";
  BulkKernel kernel(BulkKernel::copy_in(box_bytes(map) / 4) + kHandOver + "@%p8 " + opcode +
                    std::to_string(map.rank) + "d.global.shared::cta" + operation + ".bulk_group [%rd2, {" +
                    coordinates + "}], [%r9];\n" + kFinish);
  kernel.map = map;
  kernel.map_is_to = true;
  return kernel;
}

}  // namespace

TEST_CASE("a box of a matrix is loaded row by row") {
  Words expected(256);
  for (std::uint32_t i = 0; i < 256; ++i) expected[i] = 1000 + 3 * 32 + i;
  CHECK(loads(matrix_of(64), "0, 3").gives(expected));
}

TEST_CASE("a swizzle exchanges chunks by their row") {
  Words expected(256);
  for (std::uint32_t row = 0; row < 8; ++row)
    for (std::uint32_t column = 0; column < 32; ++column)
      expected[row * 32 + (column / 4 ^ row) * 4 + column % 4] = 1000 + row * 32 + column;
  CHECK(loads(matrix_of(64, Swizzle::within_128), "0, 0").gives(expected));
  CHECK(stores(matrix_of(64, Swizzle::within_128), "0, 0").gives([] {
    // What was row-major in shared memory is taken to be swizzled.
    Words result(256);
    for (std::uint32_t row = 0; row < 8; ++row)
      for (std::uint32_t column = 0; column < 32; ++column)
        result[row * 32 + column] = 1000 + row * 32 + (column / 4 ^ row) * 4 + column % 4;
    return result;
  }()));
}

TEST_CASE("what is outside of the tensor is zero on load, and counts for the mbarrier") {
  Words expected(256);
  for (std::uint32_t row = 0; row < 8; ++row)
    for (std::uint32_t column = 0; column < 32; ++column) {
      const int r = static_cast<int>(row) - 2;
      const int c = static_cast<int>(column) + 4;
      expected[row * 32 + column] =
          r >= 0 && r < 4 && c < 32 ? 1000 + static_cast<std::uint32_t>(r * 32 + c) : 0;
    }
  CHECK(loads(matrix_of(4), "4, -2").gives(expected));
  CHECK(loads(matrix_of(4), "0, 4").gives(Words(256, 0)));
  CHECK(loads(matrix_of(4, Swizzle::within_128), "64, 64").gives(Words(256, 0)));
}

TEST_CASE("elements outside become NaN if the map asks for it, and TFLOAT32 is rounded") {
  TensorMap map = matrix_of(4);
  map.element = TensorElement::tf32;
  map.fill = TensorFill::nan;
  BulkKernel kernel = loads(map, "0, 3");
  kernel.from.assign(128, 0x3f801fff);
  Words expected(256, 0x7fffffff);
  std::fill_n(expected.begin(), 32, 0x3f802000);
  CHECK(kernel.gives(expected));
}

TEST_CASE("a store leaves out what is outside of the tensor") {
  Words expected(2048, 0xeeeeeeee);
  for (std::uint32_t row = 0; row < 3; ++row)
    for (std::uint32_t column = 28; column < 32; ++column)
      expected[(row + 1) * 32 + column] = 1000 + row * 32 + column - 28;
  BulkKernel clipped = stores(matrix_of(4), "28, 1");
  CHECK(clipped.gives(expected));
  CHECK(stores(matrix_of(4), "0, 4").gives(Words(2048, 0xeeeeeeee)));
}

TEST_CASE("a store reads nothing of shared memory for what is outside") {
  // The first row of the box alone was written, and it alone is inside.
  BulkKernel kernel(
      BulkKernel::copy_in(32) + kHandOver +
      "@%p8 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd2, {0, 3}], [%r9];\n" + kFinish);
  kernel.map = matrix_of(4);
  kernel.map_is_to = true;
  Words expected(96, 0xeeeeeeee);
  for (std::uint32_t i = 0; i < 32; ++i) expected.push_back(1000 + i);
  CHECK(kernel.gives(expected));
}

TEST_CASE("tensor reductions take their type from the map") {
  TensorMap map = matrix_of(64);
  BulkKernel adds = stores(map, "0, 1", ".add");
  adds.to.assign(2048, 7);
  adds.blocks = 3;
  Words expected(32, 7);
  for (std::uint32_t i = 0; i < 256; ++i) expected.push_back(7 + 3 * (1000 + i));
  CHECK(adds.gives(expected));
  map.element = TensorElement::s32;
  BulkKernel least = stores(map, "0, 0", ".min.tile");
  least.to.assign(2048, 0xffffffff);
  CHECK(least.gives(Words(256, 0xffffffff)));
  map.element = TensorElement::f32;
  CHECK(stores(map, "0, 0", ".min").always(FaultKind::invalid_operation, {"not for"}));
}

TEST_CASE("a tensor load is multicast") {
  TensorMap map = matrix_of(64);
  BulkKernel kernel(
      "setp.eq.and.u32 %p1, %r1, 0, %p8;\n" + BulkKernel::expect(1024) + kMeet +
      "@%p1 "
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::"
      "cache_hint [%r9], [%rd2, {0, 2}], [%r8], 3, %rd0;\n" +
      BulkKernel::wait() + "mul.wide.u32 %rd3, %r1, 1024;\nadd.s64 %rd1, %rd1, %rd3;\n" +
      BulkKernel::copy_out(256) + kMeet);
  kernel.map = map;
  kernel.blocks = kernel.cluster = 2;
  Words expected;
  for (std::uint32_t i = 0; i < 512; ++i) expected.push_back(1064 + i % 256);
  CHECK(kernel.gives(expected));
}

TEST_CASE("three dimensions with element strides") {
  TensorMap map;
  map.rank = 3;
  map.element = TensorElement::u32;
  map.sizes = {8, 8, 8};
  map.strides = {32, 256};
  map.box = {4, 4, 2};
  map.steps = {1, 2, 1};
  Words expected;
  for (std::uint32_t z = 0; z < 2; ++z)
    for (std::uint32_t y = 0; y < 2; ++y)
      for (std::uint32_t x = 0; x < 4; ++x) expected.push_back(1000 + (z + 5) * 64 + (2 * y + 1) * 8 + x + 4);
  CHECK(loads(map, "4, 1, 5").gives(expected));
}

TEST_CASE("what a box with element strides has outside is zero, and counts for the mbarrier") {
  TensorMap map = matrix_of(4);
  map.steps = {1, 2};
  Words expected(4 * 32, 0);  // of the rows -3, -1, 1 and 3
  for (std::uint32_t i = 0; i < 32; ++i) {
    expected[2 * 32 + i] = 1000 + 32 + i;
    expected[3 * 32 + i] = 1000 + 3 * 32 + i;
  }
  CHECK(loads(map, "0, -3").gives(expected));
}

TEST_CASE("operands of tensor copies are checked") {
  const auto with = [](const std::string& instruction, const TensorMap& map) {
    BulkKernel kernel(BulkKernel::copy_in(2048) + kHandOver + "@%p8 " + instruction + ";\n");
    kernel.map = map;
    return kernel;
  };
  const std::string load = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes ";
  CHECK(with(load + "[%r9+64], [%rd2, {0, 0}], [%r8]", matrix_of(64))
            .always(FaultKind::misaligned, {"no multiple of 128"}));
  CHECK(with(load + "[%r9+7680], [%rd2, {0, 0}], [%r8]", matrix_of(64)).always(FaultKind::out_of_bounds));
  CHECK(with(load + "[%r9], [%rd0, {0, 0}], [%r8]", matrix_of(64))
            .always(FaultKind::invalid_operation, {"no tensor map is there"}));
  CHECK(with("add.s64 %rd2, %rd2, 32;\n@%p8 " + load + "[%r9], [%rd2, {0, 0}], [%r8]", matrix_of(64))
            .always(FaultKind::misaligned, {"not aligned to 64 bytes"}));
  TensorMap other = matrix_of(64);
  other.rank = 1;
  CHECK(with(load + "[%r9], [%rd2, {0, 0}], [%r8]", other)
            .always(FaultKind::invalid_operation, {"has 1 dimensions"}));
  const std::string store = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group ";
  CHECK(with(store + "[%rd2, {0, -1}], [%r9]", matrix_of(64))
            .always(FaultKind::invalid_operation, {"begins at coordinate -1"}));
  CHECK(with(load + "[%r9], [%rd2, {2, 0}], [%r8]", matrix_of(64))
            .always(FaultKind::invalid_operation,
                    {"begins at coordinate 2 of dimension 0, no multiple of 16 bytes"}));
  CHECK(with(store + "[%rd2, {-1, 0}], [%r9]", matrix_of(64))
            .always(FaultKind::invalid_operation, {"no multiple of 16 bytes"}));
  other = matrix_of(64);
  other.element = TensorElement::tf32;
  CHECK(with(store + "[%rd2, {0, 0}], [%r9]", other).always(FaultKind::invalid_operation, {"TFLOAT32"}));
  other = matrix_of(64, Swizzle::within_128);
  other.box[0] = 16;
  CHECK(with(load + "[%r9], [%rd2, {0, 0}], [%r8]", other)
            .always(FaultKind::invalid_operation, {"shorter than the swizzle"}));
}

TEST_CASE("a tensor that reaches beyond its memory is out of bounds where a box touches that") {
  CHECK(loads(matrix_of(128), "0, 60").always(FaultKind::out_of_bounds));
  CHECK(loads(matrix_of(128), "0, 56").gives({}));
}

TEST_CASE("a prefetch of a tensor changes nothing") {
  BulkKernel kernel("@%p8 cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd2, {0, 0}];\n");
  kernel.map = matrix_of(64);
  CHECK(kernel.gives({}));
}
