#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "emulator/program/draft.h"
#include "emulator/program/flow.h"

namespace sparsekiln::emulator {

/// Code with branches anywhere to anywhere: blocks of a few instructions, each of which ends in a branch,
/// guarded or not, in lanes' end, or in nothing. The last instruction ends all lanes, as that of a decoded
/// program does.
inline std::vector<Draft> random_flow(std::mt19937& random, std::uint32_t blocks, std::uint32_t guard) {
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  constexpr std::uint32_t kBlock = 3;
  std::vector<Draft> drafts(blocks * kBlock);
  for (Draft& draft : drafts) draft.instruction.guard = kNoGuard;
  for (std::uint32_t b = 0; b < blocks; ++b) {
    Draft& last = drafts[b * kBlock + kBlock - 1];
    const std::uint32_t way = below(8);
    if (way < 5) {
      last.flow = Flow::branch;
      last.target = below(blocks) * kBlock;
      last.instruction.run = branch;
      if (way != 0) last.instruction.guard = guard;
    } else if (way == 5) {
      last.flow = Flow::end;
      last.instruction.guard = guard;
    }
  }
  drafts.back() = {};
  drafts.back().instruction.guard = kNoGuard;
  drafts.back().flow = Flow::end;
  return drafts;
}

}  // namespace sparsekiln::emulator
