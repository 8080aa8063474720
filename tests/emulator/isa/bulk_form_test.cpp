#include <doctest/doctest.h>

#include <string>

#include "emulator/program/decode.h"
#include "emulator/ptx/parse.h"

using namespace sparsekiln;
using namespace sparsekiln::emulator;

namespace {

/// Whether a statement is accepted. Registers: r0 to r5 of 32 bits, d0 to d5 of 64, h0 to h5 of 16.
bool accepted(const std::string& statement, const char* target = "sm_90a") {
  try {
    const ptx::Module module =
        ptx::parse(std::string(".version 8.6\n.target ") + target +
                   "\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n.reg .b32 "
                   "r<6>; .reg .b64 d<6>; .reg .b16 h<6>;\n" +
                   statement + ";\nret;\n}\n");
    static_cast<void>(decode(module, module.functions.at(0), {}));
  } catch (const ptx::Error& error) {
    return false;
  }
  return true;
}

/// What ptxas 13.0 takes, too.
constexpr const char* kTaken[] = {
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d1], r2, [r3]",
    "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [r1], [d1], 64, [r3]",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [r1], [d1], r2, "
    "[r3], h1",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
    "[r1], [d1], r2, [r3], h1, d2",
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [r1], [r2], r2, [r3]",
    "cp.async.bulk.global.shared::cta.bulk_group [d1], [r1], r2",
    "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [d1], [r1], r2, d2",
    "cp.async.bulk.prefetch.L2.global [d1], r2",
    "cp.async.bulk.prefetch.L2.global.L2::cache_hint [d1], r2, d2",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group 0",
    "cp.async.bulk.wait_group.read 3",
    "cp.async.bulk.tensor.2d.tile.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d1, {r1, 5}], "
    "[r3]",
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.tile [r1], [d1, {r1, "
    "r2}], [r3]",
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint."
    "multicast::cluster [r1], [d1, {r1, r2}], [r3], h1, d2",
    "cp.async.bulk.tensor.5d.shared::cta.global.mbarrier::complete_tx::bytes [d3], [d1, {r1, r2, r3, r4, "
    "r5}], [d4]",
    "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [d1, {r1}], [r3]",
    "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.tile.L2::cache_hint [d1, {r1, r2}], [r3], d2",
    "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [d1, {r1, r2}]",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.xor.b32 [d1], [r1], 16",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f16 [d1], [r1], r2",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [d1], [r1], r2",
    "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u64 [r1], [r1], r2, "
    "[r3]",
    "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [d1, {r1, r2}], [r3]",
    "cp.reduce.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.add [d1, {r1, r2}], [r3]",
    "tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [d1], 1, r1",
    "tensormap.replace.tile.box_dim.b1024.b32 [d1], 4, 64",
    "tensormap.replace.tile.elemtype.global.b1024.b32 [d1], 6",
    "tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [r1], 3, d1",
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [d1], [r1], 128",
    "fence.proxy.tensormap::generic.acquire.sys [d1], 128",
    "fence.proxy.tensormap::generic.release.cta",
    "prefetch.tensormap [d1]",
    "prefetch.param.tensormap [d1]",
    "prefetch.param.tensormap [a]",
    "prefetch.const.tensormap [d1]",
    "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 d1, 0.5",
    "createpolicy.range.L2::evict_last.b64 d1, [d2], r1, r2",
    "createpolicy.cvt.L2.b64 d1, d2",
};

/// What ptxas 13.0 refuses, too.
constexpr const char* kRefused[] = {
    "cp.async.bulk.shared.global.mbarrier::complete_tx::bytes [r1], [d1], r2, [r3]",
    "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.multicast::cluster [r1], [d1], r2, [r3], "
    "h1",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d1], r2, [r3], h1",
    "cp.async.bulk.shared::cluster.global.bulk_group [r1], [d1], r2",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.add.u32 [r1], [d1], r2, [r3]",
    "cp.async.bulk.global.shared::cta.mbarrier::complete_tx::bytes [d1], [r1], r2, [r3]",
    "cp.async.bulk.global.shared::cta.bulk_group.multicast::cluster [d1], [r1], r2, h1",
    "cp.async.bulk.global.global.bulk_group [d1], [d2], r2",
    "cp.async.bulk.tensor.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d1, {r1}], [r3]",
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d1, {r1}], [r3]",
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d1], [r3]",
    "cp.async.bulk.tensor.2d.global.shared.bulk_group [d1, {r1, r2}], [r3]",
    "cp.async.bulk.tensor.2d.tile.tile.global.shared::cta.bulk_group [d1, {r1, r2}], [r3]",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.xor.s32 [d1], [r1], 16",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s64 [d1], [r1], 16",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [d1], [r1], 16",
    "cp.reduce.async.bulk.global.shared::cta.bulk_group.u32 [d1], [r1], 16",
    "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.and.b64 [r1], [r1], r2, "
    "[r3]",
    "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.f32 [r1], [r1], r2, "
    "[r3]",
    "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [d1+64, {r1}], [r3]",
    "ld.global.u32 r1, [d1, {r1, r2}]",
    "tensormap.replace.tile.box_dim.shared.b1024.b32 [r1], 1, r1",
    "tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [r1], 5, r1",
    "tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [r1], r2, r1",
    "tensormap.replace.tile.elemtype.global.b1024.b32 [d1], r1",
    "tensormap.replace.tile.global_address.global.b1024.b32 [d1], r1",
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [d1], [r1], 64",
    "fence.proxy.tensormap::generic.acquire.gpu [d1], 64",
    "fence.proxy.tensormap::generic.acquire.gpu",
    "prefetch.param.L1 [d1]",
};

}  // namespace

TEST_CASE("forms of bulk copies and of instructions on tensor maps that ptxas takes") {
  for (const char* const statement : kTaken) {
    CAPTURE(statement);
    CHECK(accepted(statement));
  }
}

TEST_CASE("forms of bulk copies and of instructions on tensor maps that are refused") {
  for (const char* const statement : kRefused) {
    CAPTURE(statement);
    CHECK_FALSE(accepted(statement));
  }
}

TEST_CASE("bulk copies and tensor maps need sm_90") {
  for (const char* const statement : kTaken) {
    if (std::string(statement).starts_with("createpolicy")) continue;
    CAPTURE(statement);
    CHECK_FALSE(accepted(statement, "sm_89"));
  }
}
