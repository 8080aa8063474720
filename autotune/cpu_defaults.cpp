#include "autotune/cpu_defaults.h"

#include <algorithm>
#include <string_view>

namespace sparsekiln::cpu {
namespace {

/// Every batch tile reads the whole weight; beyond this its sums and panels crowd the weight out of L1.
constexpr std::int32_t kMostTokens = 64;

/// Tokens a vector register holds; kept here, for a build without LLVM has no emitter to ask.
std::int32_t lanes_of(std::string_view level) {
  if (level.starts_with("x86-64-v4")) return 16;
  return level == "x86-64-v3" ? 8 : 4;
}

/// One vector of tokens, or else pairs of vectors, which the main loop wants; of the sizes that do, the one
/// that computes the fewest tokens that are not there, and the largest of equals.
std::int32_t tile_for(std::int64_t n, std::int32_t lanes) {
  if (n <= lanes) return lanes;
  const auto computed = [&](std::int32_t tile) { return (n + tile - 1) / tile * tile; };
  std::int32_t best = kMostTokens;
  for (std::int32_t tile = kMostTokens; tile >= 32; tile -= 16)
    if (tile % (2 * lanes) == 0 && computed(tile) < computed(best)) best = tile;
  const std::int64_t pairs = (n + 2 * lanes - 1) / (2 * lanes);
  return static_cast<std::int32_t>(std::min<std::int64_t>(best, pairs * 2 * lanes));
}

}  // namespace

Config default_config(const Target& target, std::int64_t n) {
  Config config;
  config.variant = Variant::vector;
  config.tile_n = tile_for(n, lanes_of(target.arch));
  config.warps = 1;
  config.table = TableForm::global;
  // More shares than threads, handed out one by one: a thread that the system takes away delays one of them.
  config.split = target.workers > 1 ? 4 : 1;
  return config;
}

}  // namespace sparsekiln::cpu
