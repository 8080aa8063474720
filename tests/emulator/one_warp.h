#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/machine/counters.h"
#include "emulator/program/program.h"

namespace sparsekiln::emulator {

using LaneValues = std::array<std::uint64_t, 32>;

/// A register of each lane: its bits (16, 32 or 64) and what the lanes hold.
struct Given {
  int bits = 32;
  LaneValues values{};
};

struct WarpRun {
  std::vector<LaneValues> results;
  Counters counters;
};

/// Runs `body` in one warp of `threads`. It finds its inputs in the registers %in0, %in1, … and leaves its
/// answers in %out0, %out1, … of `results` bits each; it also has %p<9>, %h<9> (16 bits), %r<9> (32) and
/// %d<9> (64), and %lane. Lanes that end early leave 0xdead in every answer. Throws ptx::Error and Fault.
[[nodiscard]] WarpRun run_warp(std::string_view body, const std::vector<Given>& inputs,
                               const std::vector<int>& results, std::uint32_t threads = 32);

/// What `value(lane)` gives, in each lane.
[[nodiscard]] inline Given lanes_of(int bits, auto value) {
  Given given{.bits = bits};
  for (int lane = 0; lane < 32; ++lane) given.values[lane] = static_cast<std::uint64_t>(value(lane));
  return given;
}

}  // namespace sparsekiln::emulator
