#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/emulator/driver/session.h"

namespace {

/// A valid request, for tests to spoil.
struct Request {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  cuuint32_t rank = 2;
  std::uint64_t address = 0x10000;
  std::array<cuuint64_t, 6> sizes = {100, 40, 2, 2, 2, 2};
  std::array<cuuint64_t, 5> strides = {256, 16384, 32768, 65536, 65536};
  std::array<cuuint32_t, 6> box = {64, 8, 1, 1, 1, 1};
  std::array<cuuint32_t, 6> steps = {1, 1, 1, 1, 1, 1};
  CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;

  CUresult encode(CUtensorMap* map) const {
    return cuTensorMapEncodeTiled(map, type, rank, reinterpret_cast<void*>(address), sizes.data(),
                                  strides.data(), box.data(), steps.data(), interleave, swizzle, promotion,
                                  fill);
  }
};

/// A value that the enumeration does not have.
template <class Enumeration>
Enumeration number(int value) {
  Enumeration result;
  static_assert(sizeof result == sizeof value);
  std::memcpy(&result, &value, sizeof value);
  return result;
}

template <class Change>
CUresult encoded(Change change) {
  Request request;
  change(request);
  CUtensorMap map;
  return request.encode(&map);
}

/// Adds one to a box of 32 × 4 words at column x, row y, through shared memory; as NVRTC has it, the map is a
/// parameter whose address is made generic.
constexpr const char* kAddOne = R"(.version 8.6
.target sm_90a
.address_size 64
.shared .align 128 .b8 s[512];
.shared .align 8 .b64 b;
.visible .entry add_one(.param .u32 x, .param .align 64 .b8 map[128], .param .u32 y) {
  .reg .pred %p<4>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<4>;
  ld.param.u32 %r1, [x];
  ld.param.u32 %r2, [y];
  mov.b64 %rd1, map;
  cvta.param.u64 %rd2, %rd1;
  mov.u32 %r3, s;
  mov.u32 %r4, b;
  mov.u32 %r5, %tid.x;
  setp.eq.u32 %p1, %r5, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r4], 1;
  bar.sync 0;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 512;
  @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd2, {%r1, %r2}], [%r4];
L:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0;
  @!%p2 bra L;
  shl.b32 %r6, %r5, 2;
  add.u32 %r6, %r6, %r3;
  ld.shared.u32 %r7, [%r6];
  add.u32 %r7, %r7, 1;
  st.shared.u32 [%r6], %r7;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd2, {%r1, %r2}], [%r3];
  @%p1 cp.async.bulk.commit_group;
  @%p1 cp.async.bulk.wait_group 0;
  ret;
}
)";

/// The same with the map in a constant variable.
std::string with_constant_map() {
  std::string text = kAddOne;
  const auto replace = [&](std::string_view from, std::string_view to) {
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
  };
  replace(".shared .align 8", ".const .align 64 .b8 constant_map[128];\n.shared .align 8");
  replace("mov.b64 %rd1, map;", "mov.b64 %rd1, constant_map;");
  replace("cvta.param", "cvta.const");
  return text;
}

/// 16 rows of 48 words, in boxes of 32 × 4.
CUtensorMap map_of_words(CUdeviceptr memory) {
  Request request;
  request.type = CU_TENSOR_MAP_DATA_TYPE_UINT32;
  request.address = memory;
  request.sizes = {48, 16, 1, 1, 1, 1};
  request.strides[0] = 48 * 4;
  request.box = {32, 4, 1, 1, 1, 1};
  request.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMap map;
  REQUIRE(request.encode(&map) == CUDA_SUCCESS);
  return map;
}

}  // namespace

TEST_CASE("a kernel takes a tensor map as a parameter, or from constant memory") {
  for (const bool constant : {false, true}) {
    CAPTURE(constant);
    const Session session;
    std::vector<std::uint32_t> words(48 * 16);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i);
    const CUdeviceptr memory = upload(words);
    CUtensorMap map = map_of_words(memory);
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, constant ? with_constant_map().c_str() : kAddOne) == CUDA_SUCCESS);
    if (constant) {
      CUdeviceptr place = 0;
      REQUIRE(cuModuleGetGlobal(&place, nullptr, module, "constant_map") == CUDA_SUCCESS);
      REQUIRE(cuMemcpyHtoD(place, &map, sizeof map) == CUDA_SUCCESS);
      map = {};
    }
    std::uint32_t x = 40;
    std::uint32_t y = 13;
    void* parameters[] = {&x, &map, &y};
    REQUIRE(cuLaunchKernel(kernel(module, "add_one"), 1, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr) ==
            CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    for (std::size_t row = 13; row < 16; ++row)
      for (std::size_t column = 40; column < 48; ++column) ++words[row * 48 + column];
    CHECK(download(memory, words.size()) == words);
  }
}

TEST_CASE("a tensor map is made, and its address replaced") {
  const Session session;
  CUtensorMap map = {};
  CUtensorMap moved = {};
  Request request;
  REQUIRE(request.encode(&map) == CUDA_SUCCESS);
  request.address = 0x20000;
  REQUIRE(request.encode(&moved) == CUDA_SUCCESS);
  CHECK(std::memcmp(&map, &moved, sizeof map) != 0);
  CHECK(cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(0x20008)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(0x20000)) == CUDA_SUCCESS);
  CHECK(std::memcmp(&map, &moved, sizeof map) == 0);
  map = {};
  CHECK(cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(0x20000)) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("every element type of sm_90 is known, and NaN fills the outside of floats alone") {
  const Session session;
  for (int type = CU_TENSOR_MAP_DATA_TYPE_UINT8; type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ; ++type) {
    CAPTURE(type);
    const auto with = [&](CUtensorMapFloatOOBfill fill) {
      return encoded([&](Request& request) {
        request.type = static_cast<CUtensorMapDataType>(type);
        request.strides[0] = 1024;
        request.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
        request.fill = fill;
      });
    };
    CHECK(with(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
    CHECK(with(CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA) ==
          (type < CU_TENSOR_MAP_DATA_TYPE_FLOAT16 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS));
  }
}

TEST_CASE("what cuda.h rules out is an invalid value") {
  const Session session;
  REQUIRE(encoded([](Request&) {}) == CUDA_SUCCESS);
  const auto invalid = [](auto change) { CHECK(encoded(change) == CUDA_ERROR_INVALID_VALUE); };
  invalid([](Request& request) { request.rank = 0; });
  invalid([](Request& request) { request.rank = 6; });
  invalid([](Request& request) { request.address += 8; });
  invalid([](Request& request) { request.sizes[1] = 0; });
  invalid([](Request& request) { request.sizes[1] = (cuuint64_t{1} << 32) + 1; });
  invalid([](Request& request) { request.strides[0] = 264; });
  invalid([](Request& request) { request.strides[0] = cuuint64_t{1} << 40; });
  invalid([](Request& request) { request.box[1] = 0; });
  invalid([](Request& request) { request.box[1] = 257; });
  invalid([](Request& request) { request.box[0] = 60; });
  invalid([](Request& request) { request.box[0] = 72; });  // 144 bytes, swizzled within 128
  invalid([](Request& request) { request.swizzle = CU_TENSOR_MAP_SWIZZLE_64B; });
  invalid([](Request& request) { request.steps[1] = 0; });
  invalid([](Request& request) { request.steps[1] = 9; });
  invalid([](Request& request) { request.interleave = CU_TENSOR_MAP_INTERLEAVE_16B; });  // of two dimensions
  invalid([](Request& request) { request.type = number<CUtensorMapDataType>(99); });
  invalid([](Request& request) { request.swizzle = number<CUtensorMapSwizzle>(99); });
  invalid([](Request& request) { request.promotion = number<CUtensorMapL2promotion>(4); });
  invalid([](Request& request) { request.fill = number<CUtensorMapFloatOOBfill>(2); });
  CHECK(Request{}.encode(nullptr) == CUDA_ERROR_INVALID_VALUE);
  CUtensorMap maps[2];
  CHECK(Request{}.encode(reinterpret_cast<CUtensorMap*>(reinterpret_cast<char*>(maps) + 32)) ==
        CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("limits that are still allowed") {
  const Session session;
  CHECK(encoded([](Request& request) { request.sizes[1] = cuuint64_t{1} << 32; }) == CUDA_SUCCESS);
  CHECK(encoded([](Request& request) { request.strides[0] = (cuuint64_t{1} << 40) - 16; }) == CUDA_SUCCESS);
  CHECK(encoded([](Request& request) { request.box[1] = 256; }) == CUDA_SUCCESS);
  CHECK(encoded([](Request& request) { request.steps[1] = 8; }) == CUDA_SUCCESS);
  CHECK(encoded([](Request& request) { request.steps[0] = 0; }) == CUDA_SUCCESS);
  CHECK(encoded([](Request& request) { request.rank = 5; }) == CUDA_SUCCESS);
}

TEST_CASE("what is not emulated of tensor maps is not supported") {
  const Session session;
  CHECK(encoded([](Request& request) {
          request.rank = 3;
          request.interleave = CU_TENSOR_MAP_INTERLEAVE_16B;
        }) == CUDA_ERROR_NOT_SUPPORTED);
  CUtensorMap map;
  const Request request;
  const int corner[3] = {0, 0, 0};
  CHECK(cuTensorMapEncodeIm2col(&map, request.type, 3, reinterpret_cast<void*>(request.address),
                                request.sizes.data(), request.strides.data(), corner, corner, 64, 8,
                                request.steps.data(), request.interleave, request.swizzle, request.promotion,
                                request.fill) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("devices before sm_90 have no tensor maps") {
  const Session session(1);
  CHECK(encoded([](Request&) {}) == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("a tensor map needs a context") {
  CHECK(encoded([](Request&) {}) != CUDA_SUCCESS);
}
