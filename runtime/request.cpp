#include "runtime/request.h"

#include <cstdint>
#include <functional>

#include <fmt/format.h>

#include "compiler/backend.h"
#include "compiler/build.h"
#include "compiler/computation_fields.h"
#include "compiler/plan.h"

namespace sparsekiln {
namespace {

/// The mixing step of SplitMix64 (Steele, Lea & Flood 2014).
std::uint64_t mix(std::uint64_t state, std::uint64_t value) {
  state = (state ^ value) + 0x9e3779b97f4a7c15u;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
  state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
  return state ^ (state >> 31);
}

std::uint64_t mix(std::uint64_t state, const Config& config) {
  const auto& [variant, tile_n, tile_out, stages, warps, split, rows, merge, split_saves, in_flight, cluster,
               cluster_rows, knobs, table, operand_a, packed] = config;
  for (const std::int32_t number :
       {tile_n, tile_out, stages, warps, split, rows, merge, split_saves, in_flight, cluster, cluster_rows,
        static_cast<std::int32_t>(variant), static_cast<std::int32_t>(table), packed ? 1 : 0,
        static_cast<std::int32_t>(operand_a)})
    state = mix(state, static_cast<std::uint64_t>(number));
  for (const std::int32_t knob : knobs) state = mix(state, static_cast<std::uint64_t>(knob));
  return state;
}

}  // namespace

std::size_t RequestHash::operator()(const Request& request) const {
  const Options& options = request.options;
  std::uint64_t state = 0;
  for (const std::uint8_t byte : request.layout.bytes) state = (state << 8) ^ (state >> 56) ^ byte;
  for (const ComputationField& field : computation_fields()) state = mix(state, field.bits(options));
  const std::uint64_t numbers[] = {
      static_cast<std::uint64_t>(options.in_features),      static_cast<std::uint64_t>(options.out_features),
      static_cast<std::uint64_t>(options.specialization),   std::hash<std::string>{}(options.target),
      std::hash<std::string>{}(options.cache_dir.native()), static_cast<std::uint64_t>(options.require),
      static_cast<std::uint64_t>(options.tuning),           reinterpret_cast<std::uintptr_t>(request.context),
  };
  for (const std::uint64_t number : numbers) state = mix(state, number);
  for (const std::filesystem::path& pack : options.packs)
    state = mix(state, std::hash<std::string>{}(pack.native()));
  if (options.config) state = mix(state, *options.config);
  return static_cast<std::size_t>(state);
}

std::vector<std::pair<std::string, std::string>> stated_fields(const Computation& what, const Target& target,
                                                               const Plan& plan) {
  std::vector<std::pair<std::string, std::string>> fields;
  for (const ComputationField& field : computation_fields())
    if (field.stated(what)) fields.emplace_back(field.name, field.text(what));
  fields.emplace_back("target", target.to_string());
  fields.emplace_back("plan", to_string(plan));
  return fields;
}

cache::Identity identity_of(const Problem& problem, const Target& target, const Plan& plan) {
  const Layout& layout = problem.layout;
  const bool any = attached(plan);  // layout: it comes when the kernel is loaded
  // Code that is for all cuts is identified as if a single block were cut.
  const bool any_cut = any && backend_of(target).attached_cuts_anywhere;
  const auto cut_of = [&](std::int64_t cut, std::int32_t side) {
    return any_cut && cut != 0 ? side - 1 : cut;
  };
  cache::Identity identity;
  identity.add("what", "binary");
  for (const auto& [field, value] : stated_fields(problem, target, plan)) {
    identity.add(field, value);
    if (field != "operation") continue;
    identity.add("layout", any ? "attached" : layout.digest().hex())
        .add("grid", any ? "attached" : fmt::format("{}x{}", layout.rows(), layout.cols()))
        .add("features", fmt::format("{}x{}", cut_of(problem.cut_out_features, problem.block.out),
                                     cut_of(problem.cut_in_features, problem.block.in)));
  }
  identity.add("compiler", compiler_digest());
  return identity;
}

}  // namespace sparsekiln
