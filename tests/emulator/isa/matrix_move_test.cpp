#include <string>

#include <doctest/doctest.h>

#include "emulator/machine/report.h"
#include "emulator/ptx/module.h"
#include "tests/emulator/one_warp.h"

namespace sparsekiln::emulator {
namespace {

/// 32 rows of 16 bytes in shared memory, 48 bytes apart; row r holds elements 8·r to 8·r + 7. Lane r's row is
/// at %r1.
const std::string kFill =
    ".shared .align 16 .b8 tile[2048];"
    "mov.u32 %r1, tile; mad.lo.u32 %r1, %lane, 48, %r1;"
    "shl.b32 %r2, %lane, 3; shl.b32 %r3, %r2, 16; or.b32 %r2, %r2, %r3; add.u32 %r2, %r2, 65536;"
    "add.u32 %r3, %r2, 131074; add.u32 %r4, %r2, 262148; add.u32 %r5, %r2, 393222;"
    "st.shared.v4.b32 [%r1], {%r2, %r3, %r4, %r5};"
    "bar.sync 0;";

std::uint64_t element(int row, int column) { return static_cast<std::uint64_t>(8 * row + column); }

}  // namespace

TEST_CASE("ldmatrix loads 1, 2 or 4 matrices, row addresses from groups of 8 lanes") {
  const WarpRun run =
      run_warp(kFill +
                   "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%out0, %out1, %out2, %out3}, [%r1];"
                   "ldmatrix.sync.aligned.m8n8.x1.shared::cta.b16 {%out4}, [%r1];"
                   "cvt.u64.u32 %d1, %r1; cvta.shared.u64 %d1, %d1;"
                   "ldmatrix.sync.aligned.m8n8.x2.b16 {%out5, %out6}, [%d1];",
               {}, {32, 32, 32, 32, 32, 32, 32});
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < 4; ++matrix) {
      const int row = 8 * matrix + lane / 4;
      const int column = 2 * (lane % 4);
      const std::uint64_t want = element(row, column) | element(row, column + 1) << 16;
      CHECK(run.results[static_cast<std::size_t>(matrix)][lane] == want);
      if (matrix == 0) CHECK(run.results[4][lane] == want);
      if (matrix < 2) CHECK(run.results[static_cast<std::size_t>(5 + matrix)][lane] == want);
    }
}

TEST_CASE("ldmatrix.trans gives each lane two elements of a column") {
  const WarpRun run =
      run_warp(kFill + "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%out0, %out1, %out2, %out3}, [%r1];",
               {}, {32, 32, 32, 32});
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < 4; ++matrix) {
      const int row = 8 * matrix + 2 * (lane % 4);
      const int column = lane / 4;
      CHECK(run.results[static_cast<std::size_t>(matrix)][lane] ==
            (element(row, column) | element(row + 1, column) << 16));
    }
}

TEST_CASE("stmatrix undoes ldmatrix, transposed or not") {
  for (const std::string trans : {"", ".trans"}) {
    CAPTURE(trans);
    const std::string modifiers = ".sync.aligned.m8n8.x4" + trans + ".shared.b16 ";
    const WarpRun run =
        run_warp(kFill + "ldmatrix" + modifiers +
                     "{%r2, %r3, %r4, %r5}, [%r1];"
                     "bar.sync 0; mov.b32 %r6, -1; st.shared.v4.b32 [%r1], {%r6, %r6, %r6, %r6};"
                     "bar.sync 0; stmatrix" +
                     modifiers +
                     "[%r1], {%r2, %r3, %r4, %r5}; bar.sync 0;"
                     "ld.shared.v4.b32 {%out0, %out1, %out2, %out3}, [%r1];",
                 {}, {32, 32, 32, 32});
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i)
        CHECK(run.results[static_cast<std::size_t>(i)][lane] ==
              (element(lane, 2 * i) | element(lane, 2 * i + 1) << 16));
  }
}

TEST_CASE("movmatrix transposes a matrix across the lanes") {
  const Given in = lanes_of(32, [](int lane) {
    return element(lane / 4, 2 * (lane % 4)) | element(lane / 4, 2 * (lane % 4) + 1) << 16;
  });
  const WarpRun run = run_warp("movmatrix.sync.aligned.m8n8.trans.b16 %out0, %in0;", {in}, {32});
  for (int lane = 0; lane < 32; ++lane)
    CHECK(run.results[0][lane] ==
          (element(2 * (lane % 4), lane / 4) | element(2 * (lane % 4) + 1, lane / 4) << 16));
}

TEST_CASE("rows of matrices in different banks take one wavefront a matrix") {
  const WarpRun run =
      run_warp(kFill + "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%out0, %out1, %out2, %out3}, [%r1];", {},
               {32, 32, 32, 32});
  // 48 bytes apart: rows 0 to 7 of a matrix begin in banks 0, 12, 24, 4, 16, 28, 8, 20.
  std::uint64_t wavefronts = 0;
  for (const LineCounters& line : run.counters) wavefronts += line.shared_wavefronts;
  CHECK(wavefronts == 4 + 4);  // of the stores that fill, and of ldmatrix
}

TEST_CASE("matrix moves fault where a row is misaligned or a lane is missing") {
  CHECK_THROWS_AS(
      (void)run_warp(kFill + "add.u32 %r1, %r1, 8; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%out0}, [%r1];",
                     {}, {32}),
      Fault);
  CHECK_THROWS_AS((void)run_warp(kFill + "setp.lt.u32 %p1, %lane, 8;"
                                         "@%p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%out0}, [%r1];",
                                 {}, {32}),
                  Fault);
  // Lanes whose address no matrix needs may hold any.
  CHECK_NOTHROW((void)run_warp(kFill + "setp.gt.u32 %p1, %lane, 7; @%p1 mov.b32 %r1, 3;"
                                       "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%out0}, [%r1];",
                               {}, {32}));
}

TEST_CASE("matrix moves of other shapes are refused") {
  const auto refused = [](const std::string& instruction) {
    CAPTURE(instruction);
    CHECK_THROWS_AS((void)run_warp(kFill + instruction, {}, {32, 32, 32, 32}), ptx::Error);
  };
  refused("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%out0}, [%r1];");
  refused("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%out0, %out1}, [%r1];");
  refused("stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r1], {%out0};");
  refused("stmatrix.sync.aligned.m8n8.x1.shared.b8 [%r1], {%out0};");
  refused("ldmatrix.sync.aligned.m8n8.x1.global.b16 {%out0}, [%r1];");
  refused("movmatrix.sync.aligned.m8n8.b16 %out0, %out1;");
}

}  // namespace sparsekiln::emulator
