#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/patterns.h>

#include "autotune/cuda/work.h"
#include "compiler/cuda/normalise.h"
#include "compiler/schedule.h"
#include "compiler/spmm.h"
#include "oracle/spmm_inputs.h"
#include "tests/counters/default_launch.h"

// What the emulator counts of the kernels that normalise the sums of a product, and of those of the gradient.

namespace sparsekiln::test {
namespace {

struct Normalisation {
  Operation operation;
  const char* epilogue;
};
constexpr Normalisation kNormalisations[] = {{Operation::forward, "layer_norm"},
                                             {Operation::forward, "layer_norm+multiply+add+relu"},
                                             {Operation::forward, "layer_norm+multiply+lstm"},
                                             {Operation::grad_input, "layer_norm+add+residual"},
                                             {Operation::grad_input, "layer_norm+multiply+add+gelu"},
                                             {Operation::grad_input, "layer_norm+lstm+residual"}};

struct Bytes {
  std::int64_t stored = 0;
  std::int64_t loaded = 0;
};

struct Counted {
  std::string what;
  bool as_usual = true;  ///< dnorm has as many parts as the cost model takes it to have
  std::vector<std::string> passes;
  Resources resources;
  Bytes needed;  ///< by the kernel that normalises, if each CTA reads gain and bias once for each of its rows
  cuda::Work expected;
  std::vector<cuda::CountedLine> lines;

  [[nodiscard]] bool normalises(const cuda::CountedLine& line) const { return line.kernel == passes.back(); }
};

/// Each row has a team of its own here. One that does not hold it writes what becomes of dh, too, and reads
/// that and the sums once more; dnorm, too, for each row.
Bytes needed_bytes(const Spmm& problem, std::int32_t threads, std::int64_t n, std::int64_t parts) {
  const Epilogue& ends = *problem.normalisation;
  const auto element = static_cast<std::int64_t>(size_of(problem.result_dtype));
  const std::int64_t groups = problem.groups_of_sums();
  const std::int64_t features = problem.normalised_features();
  const std::int64_t matrix = features * element;
  const std::int64_t state = features * 4;
  const std::int64_t multiplier = ends.multiply ? matrix : 0;
  const std::int64_t addend = ends.add ? matrix : 0;
  const std::int64_t statistics = 2 * groups * 4;
  if (problem.operation == Operation::forward)
    return {n * (matrix + statistics + (ends.lstm ? state : 0)),
            n * (groups * matrix + multiplier + addend + (ends.lstm ? state : 0) + 2 * groups * matrix)};
  const bool activates = ends.activation != Activation::none;
  const cuda::RowTeams teams = cuda::row_teams(problem, threads);
  const std::int64_t dnorm = (teams.holds ? std::min(parts, n) : n) * 2 * groups * state;
  const std::int64_t dh = features * static_cast<std::int64_t>(size_of(problem.out_dtype));
  const std::int64_t e = teams.holds ? 0 : n * groups * dh;
  const std::int64_t again = teams.holds ? 0 : n * groups * matrix;
  const std::int64_t vectors = (ends.lstm || ends.multiply || activates ? 2 : 1) * groups * matrix;
  return {n * (groups * matrix + (ends.lstm ? state : multiplier + addend)) + dnorm + e,
          n * (groups * matrix + dh + multiplier + (activates ? addend : 0) + (ends.lstm ? 3 * state : 0) +
               vectors + teams.warps * statistics) +
              dnorm + e + again};
}

Counted count(const Normalisation& normalisation, BlockShape block, std::int64_t n, DType dtype,
              const std::string& target) {
  const Layout layout = patterns::random(12, 12, 0.4, 3);
  const Options options = {.block = block,
                           .batch = n,
                           .dtype = dtype,
                           .operation = normalisation.operation,
                           .epilogue = parse_epilogue(normalisation.epilogue),
                           .target = "emulated:" + target};
  const DefaultLaunch made = launch_default(layout, options);
  const Spmm problem(made.problem);
  const Entry& entry = made.kernel.binary().entries.front();
  const HostInputs inputs = make_inputs(problem, n, Inputs::small_integers, 1);
  const Schedule schedule = make_schedule(problem, made.target(), made.config, n);
  return {
      fmt::format("{} {} on {}, block {}, batch {}, {}, '{}'", name(normalisation.operation),
                  normalisation.epilogue, target, to_string(block), n, name(dtype), to_string(made.config)),
      normalisation.operation == Operation::forward ||
          inputs.of("dnorm").rows() == std::min<std::int64_t>(n, 64),
      entry.passes,
      made.resources(),
      needed_bytes(problem, entry.threads, n, inputs.of("dnorm").rows()),
      cuda::work_of(problem, made.target(), made.config, schedule, n),
      made.lines};
}

const std::vector<Counted>& defaults() {
  static const std::vector<Counted> all = [] {
    std::vector<Counted> result;
    for (const Normalisation& normalisation : kNormalisations)
      for (const DType dtype : {DType::f16, DType::f32})
        for (const BlockShape block : {BlockShape{16, 16}, {64, 64}})
          for (const std::int64_t n : {16, 130})
            result.push_back(count(normalisation, block, n, dtype,
                                   n == 16 && dtype == DType::f16 ? "sm_80:108" : "sm_90:132"));
    return result;
  }();
  return all;
}

}  // namespace

TEST_CASE("a launch that normalises has two kernels, and neither spills a register") {
  for (const Counted& run : defaults()) {
    REQUIRE_MESSAGE(run.passes.size() == 2, run.what);
    CHECK_MESSAGE(run.passes[1] == "sparsekiln_normalise_0", run.what);
    CHECK_MESSAGE(run.resources.spill_store_bytes + run.resources.stack_bytes == 0, run.what);
    for (const cuda::CountedLine& line : run.lines)
      CHECK_MESSAGE((line.kernel == run.passes[0] || line.kernel == run.passes[1]), run.what);
  }
}

TEST_CASE("a kernel that normalises stores each result once, and loads what it needs") {
  for (const Counted& run : defaults()) {
    Bytes moved;
    for (const cuda::CountedLine& line : run.lines) {
      if (!run.normalises(line)) continue;
      const auto bytes = static_cast<std::int64_t>(line.global_bytes);
      (line.instruction.starts_with("st.") ? moved.stored : moved.loaded) += bytes;
    }
    CHECK_MESSAGE(moved.stored == run.needed.stored, run.what << ": " << moved.stored << " bytes stored, "
                                                              << run.needed.stored << " are results");
    CHECK_MESSAGE(moved.loaded <= run.needed.loaded,
                  run.what << ": " << moved.loaded << " bytes loaded, " << run.needed.loaded << " would do");
    CHECK_MESSAGE(10 * moved.loaded >= 6 * run.needed.loaded, run.what << ": " << moved.loaded);
  }
}

TEST_CASE("a kernel that normalises meets no bank conflict, and moves few sectors more than needed") {
  for (const Counted& run : defaults()) {
    std::uint64_t sectors = 0;
    std::uint64_t bytes = 0;
    for (const cuda::CountedLine& line : run.lines) {
      if (!run.normalises(line)) continue;
      CHECK_MESSAGE(line.shared_wavefronts == line.shared_ideal, run.what << ": " << line.instruction);
      sectors += line.global_sectors;
      bytes += line.global_bytes;
    }
    // Where dnorm is float32 beside f16, a lane has eight neighbours, which are two halves of a sector.
    CHECK_MESSAGE(4 * 32 * sectors <= 7 * bytes, run.what << ": " << sectors << " sectors");
  }
}

TEST_CASE("the cost model knows what a kernel that normalises does, within a third") {
  for (const Counted& run : defaults()) {
    std::int64_t moved = 0;
    std::int64_t instructions = 0;
    for (const cuda::CountedLine& line : run.lines) {
      moved += static_cast<std::int64_t>(line.global_bytes);
      if (line.kind != "tensor") instructions += static_cast<std::int64_t>(line.executed);
    }
    CHECK_MESSAGE(run.expected.kernels == 2, run.what);
    const auto near = [&](std::int64_t is, std::int64_t expected) {
      const double ratio = static_cast<double>(expected) / static_cast<double>(is);
      CHECK_MESSAGE(ratio > 0.7, run.what << ": " << ratio << " of " << is);
      CHECK_MESSAGE(ratio < 1.33, run.what << ": " << ratio << " of " << is);
    };
    if (!run.as_usual) continue;
    near(moved, run.expected.global_bytes);
    near(instructions, run.expected.instructions);
  }
}

}  // namespace sparsekiln::test
