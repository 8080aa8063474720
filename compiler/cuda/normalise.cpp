#include "compiler/cuda/normalise.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "compiler/cuda/types.h"

namespace sparsekiln::cuda {
namespace {

/// kMostRowSums of templates/normalise.cuh.
constexpr std::int32_t kMostRowSums = 8;

/// Features of all groups that a thread holds: kMostOfThread there.
std::int32_t most_of_thread(const Spmm& problem, std::int32_t threads) {
  if (problem.operation == Operation::forward) return 16;
  return problem.normalisation->lstm && threads <= 256 ? 16 : 8;
}

/// The largest power of two that divides a number; of 0: 1.
std::int64_t power_in(std::int64_t number) { return number == 0 ? 1 : number & -number; }

/// Features that the alignment of activations lets a thread read at once, of which a group of `features` has
/// a multiple.
std::int64_t aligned_features(const Spmm& problem, std::int64_t features) {
  const auto element = static_cast<std::int64_t>(size_of(problem.result_dtype));
  return std::min(std::clamp<std::int64_t>(problem.alignment, element, 16) / element, power_in(features));
}

}  // namespace

std::string_view normalisation_function(const Spmm& problem) {
  return problem.operation == Operation::forward ? "normalise" : "differentiate_normalisation";
}

Declarations normalisation_declarations(const Spmm& problem, const Instance& instance, bool attached) {
  const Epilogue& ends = *problem.normalisation;
  // Code for any layout knows features that are cut; others fill whole blocks.
  const bool known = !attached || problem.cut_out != 0;
  const std::int64_t features = known ? problem.normalised_features() : problem.block.out;
  Declarations members;
  members.type("NormOutput", fmt::format("sparsekiln::{}", output_of(problem.result_dtype)));
  members.type("NormActivation", fmt::format("sparsekiln::{}", activation_of(ends.activation)));
  members.number("norm_features", known ? features : 0, "that are normalised together; 0: the launch's");
  members.number("norm_piece", aligned_features(problem, features), "of them that a thread reads at once");
  members.flag("norm_activates", ends.activation != Activation::none);
  members.flag("norm_multiplies", ends.multiply);
  members.flag("norm_adds", ends.add);
  members.flag("norm_lstm", ends.lstm);
  members.flag("norm_sums_dynamic", instance.dynamic_shared_bytes != 0, "in dynamic shared memory");
  return members;
}

std::int32_t shared_bytes_with_normalisation(const Instance& instance) {
  const std::int32_t sums = 2 * instance.threads / 32 * kMostRowSums * 4;
  return instance.dynamic_shared_bytes == 0 ? 0 : std::max(instance.dynamic_shared_bytes, sums);
}

std::int64_t bytes_of_sums(const Spmm& problem, std::int32_t threads) {
  if (!problem.normalisation) return 0;
  return problem.bytes_of_sums(row_teams(problem, threads).holds ? 1 : problem.groups_of_sums());
}

RowTeams row_teams(const Spmm& problem, std::int32_t threads) {
  const std::int32_t most = most_of_thread(problem, threads) / problem.groups_of_sums();
  const std::int64_t of_warp = std::int64_t{32} * most;
  const auto needed = static_cast<std::int32_t>((problem.normalised_features() + of_warp - 1) / of_warp);
  RowTeams teams;
  teams.count = std::max(1, threads / 32 / std::max(needed, 1));
  teams.warps = threads / 32 / teams.count;
  teams.holds = needed <= teams.warps;
  teams.piece =
      std::min(most, static_cast<std::int32_t>(aligned_features(problem, problem.normalised_features())));
  return teams;
}

}  // namespace sparsekiln::cuda
