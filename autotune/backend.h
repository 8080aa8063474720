#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "autotune/architecture.h"
#include "autotune/predicted_time.h"
#include "compiler/family_tuning.h"
#include "compiler/problem_kind.h"

namespace sparsekiln {

/// What launches of one problem take by the cost model of a kind of target, with what configs share prepared.
class Prices {
 public:
  virtual ~Prices() = default;
  /// See Pricing.
  [[nodiscard]] virtual Prediction of(const Config& config, std::int64_t n) = 0;
  [[nodiscard]] virtual Config with_derived(const Config& config, std::int64_t /*n*/,
                                            std::int64_t /*begin*/) {
    return config;
  }
};

/// What tuning asks of a kind of target, beside what the compiler asks (compiler/backend.h). Each is the
/// constant `kTuning` of its namespace and folder (autotune/cuda/backend.cpp).
struct TuningBackend {
  Target::Kind kind;
  /// Its families of kernels.
  std::vector<const FamilyTuning<Spmm>*> (*spmm_tunings)();
  std::vector<const FamilyTuning<Sddmm>*> (*sddmm_tunings)();
  /// Tiles of few batch rows are worth a try for batches of so many of them at most: each reads the weight.
  std::int64_t most_small_tiles = std::numeric_limits<std::int64_t>::max();
  /// Whether a config of a family's default axes may be the default of a batch of n; null: all may.
  bool (*may_be_default)(const Problem&, const Config&, std::int64_t n) = nullptr;
  /// Whether the compiler may refuse a config with tables in global memory for its split.
  bool may_refuse_split = true;
  /// As the functions of autotune/default_plan.h.
  Plan (*choose_plan)(const Problem&, const Target&);
  Plan (*choose_attached_plan)(const Problem&, const Target&);
  /// Puts what a pinned config leaves open in.
  void (*pin)(Config&, const Problem&, const Target&);
  Plan (*at_layout)(Plan, const Problem&,
                    const Target&) = nullptr;  ///< null: plans leave nothing to a layout
  /// For an attached plan.
  Plan (*with_baked_tables)(Plan, const Problem&, const Target&);
  std::unique_ptr<Prices> (*prices)(Computed, const Target&, const Part&);
  /// What a part does at most by its documents; null where none describe it, and it has to be measured.
  MachinePeak (*documented_peak)(const Problem&, const Target&, const Part&) = nullptr;
};

[[nodiscard]] const TuningBackend& tuning_of(const Target& target);

}  // namespace sparsekiln
