#include <string>

#include <doctest/doctest.h>

#include "emulator/ptx/module.h"
#include "tests/emulator/one_warp.h"

namespace sparsekiln::emulator {
namespace {

TEST_CASE("mov copies registers and constants of every width") {
  const Given wide = lanes_of(64, [](int lane) { return 0x1122334455667788u + lane; });
  const auto run = run_warp(R"(
      mov.b64 %out0, %in0;
      mov.u32 %out1, -2;
      mov.u16 %h1, 513; mov.b16 %out2, %h1;
      mov.f32 %out3, 0f3F800000;
      mov.f64 %out4, 0dBFF0000000000000;
      mov.f32 %out5, 1.5;)",
                            {wide}, {64, 32, 16, 32, 64, 32});
  CHECK(run.results[0] == wide.values);
  CHECK(run.results[1][7] == 0xfffffffeu);
  CHECK(run.results[2][7] == 513);
  CHECK(run.results[3][7] == 0x3f800000u);
  CHECK(run.results[4][7] == 0xbff0000000000000u);
  CHECK(run.results[5][7] == 0x3fc00000u);
}

TEST_CASE("mov packs parts, the first lowest, and unpacks them") {
  const Given wide = lanes_of(64, [](int lane) { return 0x1122334455667700u + lane; });
  const auto run = run_warp(R"(
      mov.b64 {%r1, %r2}, %in0;
      mov.b64 %out0, {%r2, %r1};
      mov.b64 {%h1, %h2, %h3, %h4}, %in0;
      mov.b64 %out1, {%h4, %h3, %h2, %h1};
      mov.b32 {_, %h5}, %r1;
      mov.b32 %out2, {%h5, %h1};
      mov.b64 %out3, {%r1, 5};)",
                            {wide}, {64, 64, 32, 64});
  for (std::uint64_t lane = 0; lane < 32; ++lane) {
    CHECK(run.results[0][lane] == (0x5566770011223344u + (lane << 32)));
    CHECK(run.results[1][lane] == (0x7700556633441122u + (lane << 48)));
    CHECK(run.results[2][lane] == (0x77005566u + (lane << 16)));
    CHECK(run.results[3][lane] == 0x555667700u + lane);
  }
}

TEST_CASE("bytes are packed and unpacked") {
  const auto run = run_warp(R"(
      .reg .b8 %b<5>;
      mov.b32 {%b1, %b2, %b3, %b4}, %in0;
      mov.b32 %out0, {%b4, %b3, %b2, %b1};
      mov.b16 %out1, {%b1, %b4};)",
                            {lanes_of(32, [](int lane) { return 0x81424300u + lane; })}, {32, 16});
  for (std::uint64_t lane = 0; lane < 32; ++lane) {
    CHECK(run.results[0][lane] == 0x00434281u + (lane << 24));
    CHECK(run.results[1][lane] == 0x8100u + lane);
  }
}

TEST_CASE("predicates are moved, also constant ones") {
  const auto run = run_warp(R"(
      setp.lt.u32 %p1, %lane, 4;
      mov.pred %p2, %p1; selp.u32 %out0, 1, 0, %p2;
      mov.pred %p2, -1; selp.u32 %out1, 1, 0, %p2;
      mov.pred %p2, 0; selp.u32 %out2, 1, 0, %p2;)",
                            {}, {32, 32, 32});
  for (int lane = 0; lane < 32; ++lane) {
    CHECK(run.results[0][lane] == (lane < 4));
    CHECK(run.results[1][lane] == 1);
    CHECK(run.results[2][lane] == 0);
  }
}

TEST_CASE("special registers say where a lane is") {
  const auto run = run_warp(R"(
      mov.u32 %out0, %laneid; mov.u32 %out1, %ntid.x; mov.u32 %out2, %ctaid.y;
      mov.u32 %out3, %lanemask_lt; mov.u32 %out4, %lanemask_ge; mov.u32 %out5, %nctaid.z;)",
                            {}, {32, 32, 32, 32, 32, 32}, 20);
  for (std::uint64_t lane = 0; lane < 20; ++lane) {
    CHECK(run.results[0][lane] == lane);
    CHECK(run.results[1][lane] == 20);
    CHECK(run.results[2][lane] == 0);
    CHECK(run.results[3][lane] == (1u << lane) - 1);
    CHECK(run.results[4][lane] == (0xffffffffu << lane & 0xffffffffu));
    CHECK(run.results[5][lane] == 1);
  }
}

TEST_CASE("a vector that does not fill its register is refused") {
  for (const char* body : {"mov.b64 {%r1, %r2, %r3}, %d1;", "mov.b64 {%h1, %h2}, %d1;",
                           "mov.f32 %r1, {%h1, %h2};", "mov.b64 %d1, {%r1, %h1};"}) {
    CAPTURE(body);
    CHECK_THROWS_AS(static_cast<void>(run_warp(body, {}, {})), ptx::Error);
  }
}

}  // namespace
}  // namespace sparsekiln::emulator
