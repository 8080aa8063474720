#include "runtime/request.h"

#include <cstdint>
#include <functional>
#include <initializer_list>

#include <fmt/format.h>

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
  for (const std::int32_t number :
       {config.tile_n, config.tile_out, config.stages, config.warps, config.split, config.rows, config.merge,
        static_cast<std::int32_t>(config.variant), static_cast<std::int32_t>(config.table),
        config.packed ? 1 : 0, static_cast<std::int32_t>(config.operand_a)})
    state = mix(state, static_cast<std::uint64_t>(number));
  return state;
}

std::uint64_t flags(std::initializer_list<bool> values) {
  std::uint64_t bits = 0;
  for (const bool value : values) bits = bits << 1 | (value ? 1 : 0);
  return bits;
}

std::string_view word(bool value) { return value ? "yes" : "no"; }

}  // namespace

std::size_t RequestHash::operator()(const Request& request) const {
  const Options& options = request.options;
  std::uint64_t state = 0;
  for (const std::uint8_t byte : request.layout.bytes) state = (state << 8) ^ (state >> 56) ^ byte;
  const std::uint64_t numbers[] = {
      static_cast<std::uint64_t>(options.block.out),
      static_cast<std::uint64_t>(options.block.in),
      static_cast<std::uint64_t>(options.batch.bound()),
      static_cast<std::uint64_t>(options.batch.dynamic()),
      static_cast<std::uint64_t>(options.dtype),
      options.out_dtype ? 1 + static_cast<std::uint64_t>(*options.out_dtype) : 0,
      static_cast<std::uint64_t>(options.operation),
      static_cast<std::uint64_t>(options.math),
      static_cast<std::uint64_t>(options.order),
      flags({options.strict_absent, options.epilogue.scale, options.epilogue.bias, options.epilogue.glu,
             options.epilogue.residual, options.gates, options.bias_gradient, options.gate_gradient}),
      static_cast<std::uint64_t>(options.specialization),
      static_cast<std::uint64_t>(options.epilogue.activation),
      static_cast<std::uint64_t>(options.derivative),
      static_cast<std::uint64_t>(options.in_features),
      static_cast<std::uint64_t>(options.out_features),
      static_cast<std::uint64_t>(options.alignment),
      std::hash<std::string>{}(options.target),
      std::hash<std::string>{}(options.cache_dir.native()),
      static_cast<std::uint64_t>(options.require),
      static_cast<std::uint64_t>(options.tuning),
      reinterpret_cast<std::uintptr_t>(request.context),
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
  const auto add = [&](std::string_view field, std::string_view value) { fields.emplace_back(field, value); };
  add("operation", name(what.operation));
  add("block", to_string(what.block));
  add("batch", to_string(what.batch));
  add("dtype", name(what.dtype));
  add("out_dtype", name(what.out_dtype));
  add("math", name(what.math));
  add("order", name(what.order));
  add("strict_absent", word(what.strict_absent));
  add("epilogue", stored_text(what.epilogue));
  add("derivative", name(what.derivative));
  add("gates", word(what.gates));
  add("bias_gradient", word(what.bias_gradient));
  add("gate_gradient", word(what.gate_gradient));
  add("alignment", fmt::format("{}", what.alignment));
  add("target", target.to_string());
  add("plan", to_string(plan));
  return fields;
}

cache::Identity identity_of(const Problem& problem, const Target& target, const Plan& plan) {
  const Layout& layout = problem.layout;
  const bool any = attached(plan);  // layout: it comes when the kernel is loaded
  // Of any layout's features it counts which are cut, not where: as those of a single block.
  const auto cut_of = [&](std::int64_t cut, std::int32_t side) { return any && cut != 0 ? side - 1 : cut; };
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
