#pragma once

#include <cstdint>
#include <memory>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "autotune/architecture.h"
#include "autotune/batch_ranges.h"
#include "autotune/predicted_time.h"

namespace sparsekiln {

class Prices;

/// Prices launches of a problem by many configs: it prepares once what these share. Not thread-safe.
class Pricing {
 public:
  /// On a part of the target's architecture, the usual one where nothing is known of it.
  Pricing(const Problem& problem, const Target& target, const Part& part = {});
  ~Pricing();
  Pricing(const Pricing&) = delete;
  Pricing& operator=(const Pricing&) = delete;

  /// One launch of a batch of n. For configs that validate; about a microsecond a call, or where rows are put
  /// together the time that schedules take: of their steps once for each way to put rows together.
  [[nodiscard]] Prediction of(const Config& config, std::int64_t n);

  /// The config with what follows from its other numbers, where something does: see cuda::with_derived. For
  /// the range of batches from `begin` to n; of the ranges that plans have, the one that ends at n.
  [[nodiscard]] Config with_derived(const Config& config, std::int64_t n, std::int64_t begin);
  [[nodiscard]] Config with_derived(const Config& config, std::int64_t n);

 private:
  Batch batch_;
  BatchOf batch_of_;
  std::unique_ptr<Prices> prices_;
};

/// As Pricing, for one config.
[[nodiscard]] Prediction predict(const Problem& problem, const Target& target, const Config& config,
                                 std::int64_t n, const Part& part = {});

/// What every launch must do, whatever its config.
struct Floor {
  double flops = 0;  ///< of present blocks
  double bytes = 0;  ///< each operand once: weight on present blocks, activations, results
};
[[nodiscard]] Floor floor_of(const Problem& problem, std::int64_t n);

/// What a part of the target does at most, as documented: multiprocessors and memory of a GPU. Nothing where
/// no document describes it, and it has to be measured: this host's processor.
[[nodiscard]] MachinePeak peak_of(const Problem& problem, const Target& target, const Part& part = {});

}  // namespace sparsekiln
