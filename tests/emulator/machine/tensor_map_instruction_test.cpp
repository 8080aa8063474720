#include <doctest/doctest.h>

#include "emulator/machine/report.h"
#include "emulator/machine/tensor_map.h"
#include "kernel.h"

using namespace sparsekiln::emulator;

namespace {

/// 100 × 40 halves.
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

constexpr const char* kShared = ".shared .align 128 .b8 s[128];";
/// Lane 0 makes the map in shared memory, from zeros.
constexpr const char* kMake = R"(
mov.u32 %r9, s;
shl.b32 %r2, %r0, 2; add.u32 %r2, %r2, %r9; mov.u32 %r3, 0; st.shared.u32 [%r2], %r3;
bar.warp.sync -1;
mov.u64 %rd3, 65536; mov.u64 %rd4, 256; mov.u32 %r4, 1; mov.u32 %r5, 100; mov.u32 %r6, 40; mov.u32 %r7, 64; mov.u32 %r8, 8;
setp.eq.u32 %p1, %r0, 0;
@%p1 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r9], %rd3;
@%p1 tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r9], 1;
@%p1 tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r9], 0, %r7;
@%p1 tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r9], 1, %r8;
@%p1 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r9], 0, %r5;
@%p1 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r9], 1, %r6;
@%p1 tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r9], 0, %rd4;
@%p1 tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r9], 0, %r4;
@%p1 tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r9], 1, %r4;
@%p1 tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r9], 6;
@%p1 tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r9], 0;
@%p1 tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r9], 0;
@%p1 tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r9], 0;
)";
constexpr const char* kPublish =
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd0], [%r9], "
    "128;\nfence.proxy.tensormap::generic.acquire.gpu [%rd0], 128;\n";

std::optional<TensorMap> map_at(const Kernel& kernel, std::uint64_t address) {
  const auto bytes = kernel.read<TensorMapBytes>(address);
  std::string why;
  return decode_tensor_map(bytes, why);
}

}  // namespace

TEST_CASE("a kernel makes a tensor map in shared memory and publishes it") {
  Kernel kernel(std::string(kMake) + kPublish, kShared);
  const std::uint64_t at = kernel.unwritten(128);
  REQUIRE_NOTHROW((void)kernel.run());
  CHECK(map_at(kernel, at) == matrix());
}

TEST_CASE("fields of a map in global memory are replaced, also through a generic address") {
  Kernel kernel(R"(
mov.u64 %rd3, 131072; mov.u32 %r4, 17;
setp.eq.u32 %p1, %r0, 3;
@%p1 tensormap.replace.tile.global_address.global.b1024.b64 [%rd0], %rd3;
@%p1 tensormap.replace.tile.global_dim.b1024.b32 [%rd0], 1, %r4;
@%p1 fence.proxy.tensormap::generic.release.gpu;
)");
  const std::uint64_t at = kernel.unwritten(128);
  const TensorMapBytes before = encode(matrix());
  kernel.memory().write(at, before.data(), before.size());
  REQUIRE_NOTHROW((void)kernel.run());
  TensorMap expected = matrix();
  expected.address = 131072;
  expected.sizes[1] = 17;
  CHECK(map_at(kernel, at) == expected);
}

TEST_CASE("a replacement of what is no map, of a bad value, or in the wrong place is a fault") {
  const auto replaces = [](const char* text) {
    Kernel kernel(std::string("setp.eq.u32 %p1, %r0, 0;\n") + text, kShared);
    kernel.zeros(256);
    return kernel;
  };
  CHECK(replaces("mov.u32 %r4, 300;\n@%p1 tensormap.replace.tile.box_dim.global.b1024.b32 [%rd0], 0, %r4;")
            .always(FaultKind::invalid_operation, {"the value 300 is not 1 to 256", "tensormap.replace"}));
  CHECK(
      replaces("@%p1 st.global.u32 [%rd0], 7;\n@%p1 tensormap.replace.tile.rank.global.b1024.b32 [%rd0], 1;")
          .always(FaultKind::invalid_operation, {"no tensor map is there"}));
  CHECK(replaces("@%p1 tensormap.replace.tile.rank.global.b1024.b32 [%rd0+32], 1;")
            .always(FaultKind::misaligned, {"not aligned to 64 bytes"}));
  CHECK(replaces("@%p1 tensormap.replace.tile.rank.global.b1024.b32 [%rd0+192], 1;")
            .always(FaultKind::out_of_bounds));
  CHECK(replaces("mov.u32 %r9, s;\n@%p1 tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r9], 1;")
            .always(FaultKind::unwritten_read));
  // Two lanes replace fields of one map without an order between them.
  CHECK(replaces("tensormap.replace.tile.rank.global.b1024.b32 [%rd0], 1;").always(FaultKind::race));
}

TEST_CASE("a copy of a map needs the whole warp, and one place") {
  const auto copies = [](const char* text) {
    Kernel kernel(std::string(kMake) + text, kShared);
    kernel.zeros(4096);
    return kernel;
  };
  CHECK(copies(kPublish).clean());
  CHECK(copies("mul.wide.u32 %rd5, %r0, 128;\nadd.s64 %rd0, %rd0, %rd5;\n"
               "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
               "[%rd0], [%r9], 128;")
            .always(FaultKind::invalid_operation, {"has other addresses than other lanes"}));
  CHECK(copies("@%p1 tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
               "[%rd0], [%r9], 128;")
            .always(FaultKind::barrier_not_reached));
  CHECK(copies("cvta.shared.u64 %rd5, %rd5;\nfence.proxy.tensormap::generic.acquire.gpu [%rd5], 128;")
            .always(FaultKind::invalid_operation, {"not in global memory"}));
}

TEST_CASE("hints of caches are taken and change nothing") {
  Kernel kernel(R"(
prefetch.tensormap [%rd0];
createpolicy.fractional.L2::evict_first.b64 %rd3;
createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd4, 0.5;
createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %rd5, [%rd0], %r0, %r0;
createpolicy.cvt.L2.b64 %rd6, %rd3;
)");
  kernel.zeros(128);
  CHECK(kernel.clean());
}
