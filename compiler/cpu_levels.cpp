#include "compiler/cpu_levels.h"

#include <array>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::cpu {
namespace {

constexpr std::string_view kLinux = "x86_64-unknown-linux-gnu";

// The features of the System V psABI's levels that code is generated with.
constexpr std::array<std::string_view, 7> kV3{"avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe"};
constexpr std::array<std::string_view, 5> kV4{"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"};
constexpr std::array<std::string_view, 1> kBf16{"avx512bf16"};

// Eight sums keep two 4-cycle multiply-adders busy, twelve have some to spare. On AVX2, three outputs by four
// vectors are twelve with 7 loads for 12 multiply-adds (two of each a cycle), where four by two take 6 for 8;
// sums, three weights and one vector of x fill the registers. Eight outputs are two threes and a two, still
// faster than two fours. Six batch rows by two vectors of outputs, 8 for 12, are as good; blocks
// of 16 gain some tenth by them, for one tile has all of a block's outputs, and others nothing. AVX-512 has
// registers for eight by two, 10 for 16, or where there are four vectors of batch rows four by four, 8
// for 16. For the gradient of the weight, 16 registers hold twelve sums, three words that are broadcast and
// one vector; where multiply-adds are two instructions, products need some too.
constexpr Level kBaseline{.name = "x86-64",
                          .triple = kLinux,
                          .cpu = "x86-64",
                          .features = "",
                          .host_features = {},
                          .lanes = 4,
                          .registers = 16,
                          .fused = false,
                          .dot_bf16 = false,
                          .f16c = false,
                          .streaming_stores = true,
                          .tile_outputs = 4,
                          .wide_outputs = 0,
                          .broadcast_outputs = 0,
                          .tile_batch_rows = 0,
                          .gradient_sums = 8};

constexpr Level kAvx2{.name = "x86-64-v3",
                      .triple = kLinux,
                      .cpu = "x86-64-v3",
                      .features = "",
                      .host_features = kV3,
                      .lanes = 8,
                      .registers = 16,
                      .fused = true,
                      .dot_bf16 = false,
                      .f16c = true,
                      .streaming_stores = true,
                      .tile_outputs = 4,
                      .wide_outputs = 3,
                      .broadcast_outputs = 16,
                      .tile_batch_rows = 6,
                      .gradient_sums = 12};

constexpr Level kAvx512{.name = "x86-64-v4",
                        .triple = kLinux,
                        .cpu = "x86-64-v4",
                        .features = "",
                        .host_features = kV4,
                        .lanes = 16,
                        .registers = 32,
                        .fused = true,
                        .dot_bf16 = false,
                        .f16c = true,
                        .streaming_stores = true,
                        .tile_outputs = 8,
                        .wide_outputs = 4,
                        .broadcast_outputs = 0,
                        .tile_batch_rows = 0,
                        .gradient_sums = 24};

constexpr Level with_bf16(Level level) {
  level.name = "x86-64-v4-bf16";
  level.features = "+avx512bf16";
  level.host_features = kBf16;
  level.dot_bf16 = true;
  return level;
}

/// Any processor that LLVM compiles for: the host's.
constexpr Level any_processor(Level level) {
  level.name = "generic";
  level.triple = "";
  level.cpu = "generic";
  level.streaming_stores = false;
  return level;
}

constexpr std::array kLevels = {kBaseline, kAvx2, kAvx512, with_bf16(kAvx512), any_processor(kBaseline)};

}  // namespace

std::span<const Level> levels() { return kLevels; }

const Level* find_level(std::string_view name) {
  for (const Level& level : kLevels)
    if (level.name == name) return &level;
  return nullptr;
}

const Level& level_of(const Target& target) {
  if (const Level* const level = find_level(target.arch); level != nullptr) return *level;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("the cpu target has no level '{}'; it has {}", target.arch, level_names()));
}

bool runs(std::string_view host, std::string_view level) {
  if (level == "generic") return true;
  const Level* const of_host = find_level(host);
  const Level* const of_level = find_level(level);
  // Levels of x86-64 stand in order; "generic", the last, is the only one of other hosts.
  return of_host != nullptr && of_level != nullptr && host != "generic" && of_level <= of_host;
}

std::string level_names() {
  std::string names;
  for (const Level& level : kLevels) names += fmt::format("{}{}", names.empty() ? "" : ", ", level.name);
  return names;
}

}  // namespace sparsekiln::cpu
