// What the cost model says of configs that were measured: reads a file of JSON documents, one a line, and
// prints one for each, in the same order. No GPU is asked, and no record is read.
//
//   predictions FILE [--target h100]
//
// A line names a problem and a config of it: rows and cols (features), density, block, type (as --dtype, or
// tf32), n, op, layout_seed (of the random layout), config, and for a convolution conv, as --conv takes it.
// In place of density and layout_seed it may name a file that has the layout (`layout`). Without a config it
// is what compile() takes, or with `attached` what it takes for tables. The answer has `predicted_us`,
// `bound`, `memory_bytes`, `cache_bytes`, `instructions` of warps, `flops` of present blocks, and
// `multiplied` with those of zeros in merged tiles,
// `config` in full, and `default`, what compile() takes for the problem.

#include <cstdint>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/config.h>
#include <sparsekiln/convolution.h>
#include <sparsekiln/error.h>
#include <sparsekiln/layout.h>
#include <sparsekiln/patterns.h>
#include <nlohmann/json.hpp>

#include "autotune/default_plan.h"
#include "autotune/prediction.h"
#include "bench/command_line.h"
#include "system/standard_streams.h"

namespace sparsekiln {
namespace {

Problem problem_of(const nlohmann::json& line) {
  Problem problem;
  const auto block = line.at("block").get<std::int32_t>();
  const auto type = line.at("type").get<std::string>();
  problem.layout = line.contains("layout") ? Layout::load(line.at("layout").get<std::string>())
                                           : patterns::random(line.at("rows").get<std::int32_t>() / block,
                                                              line.at("cols").get<std::int32_t>() / block,
                                                              line.at("density").get<double>(),
                                                              line.at("layout_seed").get<std::uint64_t>());
  problem.block = parse_block_shape(std::to_string(block));
  problem.batch = parse_batch(std::to_string(line.at("n").get<std::int64_t>()));
  problem.dtype = problem.out_dtype = parse_dtype(type == "tf32" ? "f32" : type);
  problem.math = parse_math(type == "tf32" ? "tf32" : "ieee");
  problem.operation = parse_operation(line.at("op").get<std::string>());
  if (line.contains("conv")) problem.convolution = parse_convolution(line.at("conv").get<std::string>());
  return problem;
}

/// The config that a line names.
Config config_of(const nlohmann::json& line, const Problem& problem, const Target& target) {
  if (!line.contains("config"))
    return line.value("attached", false)
               ? at_layout(choose_attached_plan(problem, target), problem, target).back().config
               : choose_plan(problem, target).back().config;
  Config config = parse_config(line.at("config").get<std::string>());
  if (config.in_flight == kDerivedInFlight)
    config.in_flight = kAllInFlight;  // as it was when they were measured
  return config;
}

/// A problem and what its configs share.
struct Priced {
  Priced(const Problem& of, const Target& target)
      : problem(of), pricing(of, target), chosen(to_string(choose_plan(of, target).back().config)) {}
  Problem problem;
  Pricing pricing;
  std::string chosen;
};

void predict_all(bench::CommandLine& line) {
  const Target target = Target::parse(line.take("--target").value_or("h100"));
  const std::string& path = line.only("file of measured configs");
  std::ifstream file(path);
  if (!file) throw Error(ErrorKind::io, fmt::format("cannot read '{}'", path));
  std::map<std::string, std::unique_ptr<Priced>> problems;
  for (std::string text; std::getline(file, text);) {
    const auto measured = nlohmann::json::parse(text);
    nlohmann::json key = nlohmann::json::array();
    for (const char* name : {"rows", "cols", "density", "block", "type", "n", "op", "layout_seed", "layout"})
      key.push_back(measured.value(name, nlohmann::json()));
    key.push_back(measured.value("conv", ""));
    auto& priced = problems[key.dump()];
    if (!priced) priced = std::make_unique<Priced>(problem_of(measured), target);
    const Problem& problem = priced->problem;
    const Config config = config_of(measured, problem, target);
    const Prediction said = priced->pricing.of(config, problem.batch.bound());
    const nlohmann::json answer{{"predicted_us", said.us},
                                {"bound", name(said.bound)},
                                {"memory_bytes", said.memory_bytes},
                                {"cache_bytes", said.cache_bytes},
                                {"instructions", said.instructions},
                                {"multiplied", 2 * said.products},
                                {"flops", floor_of(problem, problem.batch.bound()).flops},
                                {"config", to_string(config)},
                                {"default", priced->chosen}};
    write_results(answer.dump() + "\n");
  }
}

}  // namespace
}  // namespace sparsekiln

int main(int argc, char** argv) {
  return sparsekiln::bench::run_program(argc, argv, sparsekiln::predict_all);
}
