#include <doctest/doctest.h>

#include <string>

#include "emulator/machine/register_pool.h"
#include "emulator/ptx/parse.h"
#include "kernel.h"

using namespace sparsekiln;
using namespace sparsekiln::emulator;

namespace {

/// 384 threads, of which each may have 168 registers: three warpgroups, whose number is in %r9.
Kernel three_groups(const std::string& body) {
  Kernel kernel("shr.u32 %r9, %r0, 7;\nsetp.eq.u32 %p0, %r9, 0;\n" + body, "",
                ".maxntid 384, 1, 1\n.minnctapersm 1");
  kernel.threads = 384;
  static_cast<void>(kernel.zeros(64));
  return kernel;
}

std::string producer_and_consumers(int of_producer, int of_consumers) {
  return "@%p0 bra PRODUCE;\nsetmaxnreg.inc.sync.aligned.u32 " + std::to_string(of_consumers) +
         ";\nbra END;\nPRODUCE: setmaxnreg.dec.sync.aligned.u32 " + std::to_string(of_producer) + ";\nEND: ";
}

std::uint32_t at_start(const std::string& limits) {
  const ptx::Module module = ptx::parse(
      ".version 8.5\n.target sm_90a\n.address_size 64\n.visible .entry k() " + limits + " { ret; }\n");
  return registers_at_start(module.functions.at(0));
}

}  // namespace

TEST_CASE("the registers of a kernel at its start are those that ptxas gives it") {
  CHECK(at_start("") == 0);
  CHECK(at_start(".maxntid 384") == 0);  // ptxas: unable to determine register count at entry
  CHECK(at_start(".maxntid 384 .minnctapersm 1") == 168);
  CHECK(at_start(".maxntid 384 .minnctapersm 2") == 80);
  CHECK(at_start(".reqntid 128 .minnctapersm 3") == 168);
  CHECK(at_start(".maxntid 1024 .minnctapersm 1") == 64);
  CHECK(at_start(".maxntid 1 .minnctapersm 32") == 64);
  CHECK(at_start(".maxntid 128 .minnctapersm 1") == 256);  // 255, of which a warp gets whole eights
  CHECK(at_start(".maxnreg 100") == 104);
  CHECK(at_start(".maxntid 384 .minnctapersm 1 .maxnreg 200") == 168);
  CHECK(at_start(".maxntid 384 .minnctapersm 1 .maxnreg 128") == 128);
}

TEST_CASE("warps get the registers that others return") {
  CHECK(three_groups(producer_and_consumers(40, 232)).clean());
  CHECK(three_groups(producer_and_consumers(24, 240)).clean());
}

TEST_CASE("registers that no warp returns are a deadlock") {
  CHECK(three_groups(producer_and_consumers(80, 224))
            .always(FaultKind::deadlock, {"warpgroup", "224", "pool"}));
  CHECK(three_groups(producer_and_consumers(40, 240)).always(FaultKind::deadlock, {"240"}));
  CHECK(three_groups("setmaxnreg.inc.sync.aligned.u32 176;\n").always(FaultKind::deadlock));
}

TEST_CASE("a setmaxnreg that a warp waits at is named before those who wait for that warp") {
  CHECK(three_groups(producer_and_consumers(80, 224) + "bar.sync 0;\n")
            .always(FaultKind::deadlock, {"setmaxnreg.inc"}));
}

TEST_CASE("setmaxnreg.dec does not increase and setmaxnreg.inc does not decrease") {
  CHECK(three_groups("setmaxnreg.dec.sync.aligned.u32 176;\n").always(FaultKind::invalid_operation, {"168"}));
  CHECK(three_groups("setmaxnreg.inc.sync.aligned.u32 160;\n").always(FaultKind::invalid_operation, {"168"}));
  CHECK(three_groups(
            "setmaxnreg.dec.sync.aligned.u32 168;\nbar.sync 0;\nsetmaxnreg.inc.sync.aligned.u32 168;\n")
            .clean());
}

TEST_CASE("all warps of a warpgroup execute the same setmaxnreg") {
  const std::string fifth = "shr.u32 %r8, %r0, 5;\nsetp.eq.u32 %p1, %r8, 5;\n";
  CHECK(three_groups(fifth + "@%p1 bra END;\nsetmaxnreg.dec.sync.aligned.u32 40;\nEND: ")
            .always(FaultKind::invalid_operation, {"ended"}));
  CHECK(three_groups(fifth + "@%p1 bra L;\nsetmaxnreg.dec.sync.aligned.u32 40;\nbra END;\n"
                             "L: setmaxnreg.dec.sync.aligned.u32 48;\nEND: ")
            .always(FaultKind::invalid_operation, {"same setmaxnreg"}));
  CHECK(
      three_groups("setp.gt.u32 %p1, %r0, 31;\n@%p1 bar.sync 1, 384;\nsetmaxnreg.dec.sync.aligned.u32 160;\n"
                   "setmaxnreg.dec.sync.aligned.u32 152;\n@!%p1 bar.sync 1, 384;\n")
          .always(FaultKind::invalid_operation, {"has not executed"}));
}

TEST_CASE("setmaxnreg has no effect where the registers at the start are not known") {
  Kernel kernel("setmaxnreg.inc.sync.aligned.u32 232;\n");
  kernel.threads = 384;
  static_cast<void>(kernel.zeros(64));
  CHECK(kernel.clean());
}
