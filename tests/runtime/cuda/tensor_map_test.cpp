#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <cuda.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "runtime/cuda/context.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/emulator.h"
#include "runtime/cuda/tensor_maps.h"
#include "tests/runtime/cuda/stub_session.h"

using namespace sparsekiln;

namespace {

/// A kernel that takes maps of x [n, 384] in bf16 and of w [320, 64] in f16, between other arguments.
Binary mapped_binary() {
  Binary binary = stub_binary();
  binary.code = code_of("cubin sm_90\nkernel forward 8 128 4 128 8\n");
  Entry& entry = binary.entries.front();
  entry.arguments = {Argument::y, Argument::tensor_map, Argument::n, Argument::tensor_map,
                     Argument::y_stride};
  entry.tensor_maps = {{.operand = Argument::x,
                        .type = DType::bf16,
                        .row_length = 384,
                        .box_length = 64,
                        .box_rows = 32,
                        .swizzle_bytes = 128},
                       {.operand = Argument::w,
                        .type = DType::f16,
                        .row_length = 64,
                        .rows = 320,
                        .stride = 64,
                        .box_length = 16,
                        .box_rows = 256,
                        .swizzle_bytes = 32,
                        .l2_bytes = 256}};
  return binary;
}

Launch launch_of(std::int64_t n, std::int64_t x_stride, std::uintptr_t x = 0x1100) {
  return {reinterpret_cast<const void*>(x),
          reinterpret_cast<const void*>(0x2200),
          reinterpret_cast<void*>(0x3300),
          nullptr,
          n,
          x_stride,
          768};
}

std::optional<Error> error_of_loading(int device) {
  return error_of([&] { static_cast<void>(cuda::open_device(device)->load(shared(mapped_binary()))); });
}

}  // namespace

TEST_CASE("a launch makes the entry's tensor maps of its operands and passes them in their places") {
  const StubSession session;
  const auto module = cuda::open_device(0)->load(shared(mapped_binary()));
  stub::record();
  const Launch launch = launch_of(33, 400);
  module->launch(0, launch);
  CHECK(stub::calls() ==
        std::vector<std::string>{"cuTensorMapEncodeTiled", "cuTensorMapEncodeTiled", "cuLaunchKernel"});
  const std::vector<stub::TensorMap> maps = stub::tensor_maps();
  REQUIRE(maps.size() == 2);
  const stub::TensorMap& x = maps[0];
  CHECK(x.type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  CHECK(x.address == launch.x);
  CHECK(x.extents == std::vector<unsigned long long>{384, 33});
  CHECK(x.strides == std::vector<unsigned long long>{800});
  CHECK(x.box == std::vector<unsigned>{64, 32});
  CHECK(x.element_strides == std::vector<unsigned>{1, 1});
  CHECK(x.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE);
  CHECK(x.swizzle == CU_TENSOR_MAP_SWIZZLE_128B);
  CHECK(x.l2_promotion == CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
  CHECK(x.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  const stub::TensorMap& w = maps[1];
  CHECK(w.type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
  CHECK(w.address == launch.w);
  CHECK(w.extents == std::vector<unsigned long long>{64, 320});
  CHECK(w.strides == std::vector<unsigned long long>{128});
  CHECK(w.box == std::vector<unsigned>{16, 256});
  CHECK(w.swizzle == CU_TENSOR_MAP_SWIZZLE_32B);
  CHECK(w.l2_promotion == CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  const stub::Launch made = stub::launches().at(0);
  REQUIRE(made.arguments.size() == 5);
  CHECK(made.arguments[1] == stub::tensor_map_bytes(0));
  CHECK(made.arguments[3] == stub::tensor_map_bytes(1));
  CHECK(made.arguments[2] == std::vector<std::byte>{std::byte{33}, {}, {}, {}});
}

TEST_CASE("every launch makes tensor maps of its own n, stride and address, for all passes") {
  const StubSession session;
  Binary binary = mapped_binary();
  binary.code = code_of("cubin sm_90\nkernel prepare 8 128 4 128 8\nkernel forward 8 128 4 128 8\n");
  Entry& entry = binary.entries.front();
  entry.passes = {"prepare", "forward"};
  entry.attributes.overlaps_previous = true;
  entry.tensor_maps.front().row_length = 0;  // feature-major: rows of n
  entry.tensor_maps.front().rows = 384;
  const auto module = cuda::open_device(0)->load(shared(binary));
  stub::record();
  module->launch(0, launch_of(33, 40));
  module->launch(0, launch_of(100, 104, 0x5500));
  const std::vector<stub::TensorMap> maps = stub::tensor_maps();
  REQUIRE(maps.size() == 4);
  CHECK(maps[0].extents == std::vector<unsigned long long>{33, 384});
  CHECK(maps[0].strides == std::vector<unsigned long long>{80});
  CHECK(maps[2].extents == std::vector<unsigned long long>{100, 384});
  CHECK(maps[2].strides == std::vector<unsigned long long>{208});
  CHECK(maps[2].address == reinterpret_cast<const void*>(0x5500));
  const std::vector<stub::Launch> made = stub::launches();
  REQUIRE(made.size() == 4);
  for (std::size_t i = 0; i < made.size(); ++i) {
    CHECK(made[i].overlaps_previous);
    CHECK(made[i].arguments.at(1) == stub::tensor_map_bytes(i / 2 * 2));
    CHECK(made[i].arguments.at(3) == stub::tensor_map_bytes(i / 2 * 2 + 1));
  }
}

TEST_CASE("a map whose rows come in the tensor cores' order has halves, lanes and pairs as dimensions") {
  const StubSession session;
  Binary binary = mapped_binary();
  binary.entries.front().tensor_maps.back().interleave = 8;
  const auto module = cuda::open_device(0)->load(shared(binary));
  stub::record();
  module->launch(0, launch_of(33, 400));
  const stub::TensorMap w = stub::tensor_maps().at(1);
  CHECK(w.extents == std::vector<unsigned long long>{64, 2, 4, 4, 10});
  CHECK(w.strides == std::vector<unsigned long long>{128, 1024, 256, 4096});
  CHECK(w.box == std::vector<unsigned>{16, 2, 4, 4, 8});
  CHECK(w.element_strides == std::vector<unsigned>{1, 1, 1, 1, 1});
}

TEST_CASE("a map of images has their positions as dimensions, and as many images as the launch") {
  const StubSession session;
  Binary binary = mapped_binary();
  TensorMap& x = binary.entries.front().tensor_maps.front();
  x.box_length = 32;
  x.box_rows = 1;
  x.image = {5, 14, 28};
  x.box_image = {1, 9, 10};
  const auto module = cuda::open_device(0)->load(shared(binary));
  stub::record();
  module->launch(0, launch_of(33, 400));
  const stub::TensorMap made = stub::tensor_maps().at(0);
  CHECK(made.extents == std::vector<unsigned long long>{384, 28, 14, 5, 33});
  CHECK(made.strides == std::vector<unsigned long long>{800, 28 * 800, 14 * 28 * 800, 5 * 14 * 28 * 800});
  CHECK(made.box == std::vector<unsigned>{32, 10, 9, 1, 1});
  CHECK(made.element_strides == std::vector<unsigned>{1, 1, 1, 1, 1});
}

TEST_CASE("a map whose boxes skip positions of images asks for boxes that reach over what they skip") {
  const StubSession session;
  Binary binary = mapped_binary();
  TensorMap& x = binary.entries.front().tensor_maps.front();
  x.box_length = 32;
  x.box_rows = 1;
  x.image = {5, 14, 28};
  x.box_image = {1, 9, 10};
  x.step_image = {1, 3, 2};
  const auto module = cuda::open_device(0)->load(shared(binary));
  stub::record();
  module->launch(0, launch_of(33, 400));
  const stub::TensorMap made = stub::tensor_maps().at(0);
  CHECK(made.extents == std::vector<unsigned long long>{384, 28, 14, 5, 33});
  CHECK(made.box == std::vector<unsigned>{32, 20, 27, 1, 1});
  CHECK(made.element_strides == std::vector<unsigned>{1, 2, 3, 1, 1});
}

TEST_CASE("a map that rounds floats to tf32 says so") {
  const StubSession session;
  Binary binary = mapped_binary();
  TensorMap& w = binary.entries.front().tensor_maps.back();
  w.type = DType::f32;
  w.box_length = 8;
  w.to_tf32 = true;
  const auto module = cuda::open_device(0)->load(shared(binary));
  stub::record();
  module->launch(0, launch_of(33, 400));
  CHECK(stub::tensor_maps().at(1).type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32);
}

TEST_CASE("a map of an operand of a pair has that pair's address, and is zeros where there is no such pair") {
  const StubSession session;
  Binary binary = mapped_binary();
  std::vector<TensorMap>& maps = binary.entries.front().tensor_maps;
  maps.back() = maps.front();
  maps.front().operand = Argument::pair_x;
  maps.back().operand = Argument::pair_dy;
  maps.front().pair = maps.back().pair = 1;
  const auto module = cuda::open_device(0)->load(shared(binary));
  Launch launch = launch_of(33, 400);
  launch.pairs.pair[0] = {reinterpret_cast<const void*>(0x100), reinterpret_cast<const void*>(0x200)};
  launch.pairs.pair[1] = {reinterpret_cast<const void*>(0x300), reinterpret_cast<const void*>(0x400)};
  stub::record();
  module->launch(0, launch);
  const std::vector<stub::TensorMap> made = stub::tensor_maps();
  REQUIRE(made.size() == 2);
  CHECK(made[0].address == launch.pairs.pair[1].x);
  CHECK(made[0].strides == std::vector<unsigned long long>{800});
  CHECK(made[1].address == launch.pairs.pair[1].dy);
  CHECK(made[1].strides == std::vector<unsigned long long>{2 * 768});
  launch.pairs.pair[1] = {};
  module->launch(0, launch);
  CHECK(stub::tensor_maps().size() == 2);  // no more
  CHECK(stub::launches().at(1).arguments.at(1) == std::vector<std::byte>(128));
}

TEST_CASE("without batch rows a tensor map is zeros, and the driver is not asked for it") {
  const StubSession session;
  const auto module = cuda::open_device(0)->load(shared(mapped_binary()));
  stub::record();
  module->launch(0, launch_of(0, 0, 0));
  CHECK(stub::tensor_maps().size() == 1);
  CHECK(stub::launches().at(0).arguments.at(1) == std::vector<std::byte>(128));
}

TEST_CASE("a tensor map that the driver refuses is an Error with what it is of, and nothing is launched") {
  const StubSession session;
  const auto module = cuda::open_device(0)->load(shared(mapped_binary()));
  stub::record();
  const auto error = error_of([&] { module->launch(0, launch_of(33, 385)); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::driver);
  CHECK(says(error,
             "making tensor map 0 of the kernel forward for a batch of 33 on Stub H100 (33 rows of 384 "
             "bf16 at 0x1100, 770 bytes apart, in boxes of 32 x 64; "));
  CHECK(says(error, "CUDA_ERROR_INVALID_VALUE"));
  CHECK(stub::launches().empty());
}

TEST_CASE("tensor maps that the device or the driver does not have are refused with what would work") {
  const StubSession session(true);
  CHECK_FALSE(error_of_loading(0));
  CHECK(says(error_of_loading(1), "takes tensor maps, which sm_90 and later have, and Stub T4 is sm_75"));
}

TEST_CASE("a driver without tensor maps serves kernels that take none, and refuses one that does") {
  const StubSession session(true);
  stub::hide("cuTensorMapEncodeTiled");
  const auto error = error_of_loading(0);
  CHECK(says(error, "the kernel forward takes tensor maps, made by cuTensorMapEncodeTiled, which "));
  CHECK(says(error, "does not have; NVIDIA's driver for CUDA 12.0 or later would work"));
  CHECK_NOTHROW(static_cast<void>(cuda::open_device(0)->load(shared(stub_binary()))));
}

TEST_CASE("the emulator makes tensor maps, and refuses what a driver refuses") {
  const Entry entry = mapped_binary().entries.front();
  const auto context = cuda::open_emulated(90);
  const cuda::TensorMaps maps(*context, entry);
  CUtensorMap made[2] = {};
  const cuda::ContextScope current(*context);
  CHECK_NOTHROW(maps.encode(*context, launch_of(33, 384), made));
  CHECK(made[0].opaque[0] != 0);
  CHECK(made[1].opaque[0] != 0);
  CHECK(says(error_of([&] { maps.encode(*context, launch_of(33, 385), made); }),
             "making tensor map 0 of the kernel forward"));
}

TEST_CASE("an entry whose tensor maps are not one for each argument is refused when it is loaded") {
  const StubSession session;
  Binary binary = mapped_binary();
  binary.entries.front().tensor_maps.pop_back();
  const auto error = error_of([&] { static_cast<void>(cuda::open_device(0)->load(shared(binary))); });
  CHECK(says(error, "the kernel forward takes 2 tensor maps and comes with 1"));
}
