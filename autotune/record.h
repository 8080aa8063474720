#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sparsekiln/binary.h>
#include <sparsekiln/config.h>

#include "autotune/statistics.h"

namespace sparsekiln {

/// What became of a candidate.
enum class Outcome : std::uint8_t {
  untried,   ///< there was no time for it; the next run goes on with it
  pruned,    ///< never to be measured: `reason` says why
  failed,    ///< it does not compile, is wrong, crashes or hangs: `reason` says which
  measured,  ///< on a device, with its answer checked before
  modelled,  ///< its time is the cost model's; where there is an emulator, its answer was checked there
};
[[nodiscard]] std::string_view name(Outcome outcome);

/// One config, and all that is known of it.
struct Candidate {
  Config config;
  Outcome outcome = Outcome::untried;
  std::string reason;       ///< of `untried`, `pruned` and `failed`
  double predicted_us = 0;  ///< the cost model's time of a launch; 0: none
  double compile_ms = 0;    ///< wall time; 0: not compiled
  Resources resources;      ///< where compiled
  /// Microseconds a launch, one value a sample, in the order in which they were taken: every one ever taken.
  std::vector<double> samples_us;
  /// Each of them over the default's sample of the same round: what tells fast from slow where others are at
  /// work on the machine now and then.
  std::vector<double> relative;
  /// The samples of the finals, one a round, interleaved with those of the other finalists. The i-th of each
  /// are of the same round; where the last round was not ended, some have one less.
  std::vector<double> final_us;

  /// What its time is taken to be: of the finals, else of all samples, else (modelled) the prediction;
  /// nothing where it has none.
  [[nodiscard]] std::optional<Spread> time_us() const;
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

/// Candidates of one contest that were never compiled, for the same reason.
struct PrunedGroup {
  std::string reason;  ///< the first one's, with its numbers
  Config example;      ///< the first one
  std::int32_t count = 0;
  friend bool operator==(const PrunedGroup&, const PrunedGroup&) = default;
};

/// The candidates for one range of n, measured at its largest.
struct Contest {
  std::int64_t n = 0;     ///< as RangedConfig::up_to
  double flops = 0;       ///< of present blocks, one launch
  double bytes = 0;       ///< that a launch must read and write at least: each operand once
  double floor_us = 0;    ///< the physical floor: bytes over bandwidth, or operations over peak, the larger
  Config default_config;  ///< the default plan's; a candidate like the others
  std::vector<Candidate> candidates;  ///< in the space's order, the default first
  std::vector<PrunedGroup> pruned;    ///< of the space, those that are no candidates

  [[nodiscard]] const Candidate* find(const Config& config) const;
  [[nodiscard]] Candidate* find(const Config& config);
  friend bool operator==(const Contest&, const Contest&) = default;
};

/// How a contest ended.
struct Standing {
  const Candidate* best = nullptr;      ///< null: no candidate has a time
  const Candidate* second = nullptr;    ///< the fastest of the others; null: there is none
  const Candidate* standard = nullptr;  ///< the default, where it has a time
  double margin = 0;   ///< second over best, less 1: 0.03 is 3 %. Below 0 where a tie went to the slower
  double speedup = 1;  ///< default over best
  bool tie = false;    ///< the best is not distinguishable from another one that comes later in the order
  bool measured = false;
};

/// Ties closer than this are none of the machine's business (DESIGN §8.4).
inline constexpr double kTie = 0.02;

/// Chooses the fastest; among those that tie with it (within kTie by the median of the ratios of their
/// rounds, or where the 20th to 80th percentile of these spans 1) the first in the contest's order whose
/// median is not above the default's by more than kTie. Measured times come before modelled ones.
[[nodiscard]] Standing standing(const Contest& contest);

/// Environment::policy where there is no device.
inline constexpr const char* kModelledPolicy = "modelled";

/// Where measurements were taken. Part of a record's identity, never of a Binary's.
struct Environment {
  std::string device;            ///< "NVIDIA H100 80GB HBM3", "AMD EPYC 7763 64-Core Processor"
  std::int32_t workers = 0;      ///< multiprocessors; on the cpu the threads that launches use
  std::int64_t cache_bytes = 0;  ///< L2 of a GPU, last level of a processor; 0: unknown
  std::string driver;            ///< "CUDA 13.0", what it takes at most; empty on the cpu
  std::string policy;            ///< how time is taken: kPolicy
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const Environment&, const Environment&) = default;
};

/// What a machine can do at most, for floors and rooflines.
struct MachinePeak {
  double gflops = 0;      ///< multiply-adds of the problem's types, two operations each, GFLOP/s
  double gbytes = 0;      ///< of its memory, GB/s
  bool measured = false;  ///< else from public documents
  friend bool operator==(const MachinePeak&, const MachinePeak&) = default;
};

/// A layout from afar, for drawing without it.
struct LayoutSummary {
  std::int32_t rows = 0;  ///< of blocks
  std::int32_t cols = 0;
  std::int64_t blocks = 0;  ///< present
  /// Rows of at most 64 cells, each a hexadecimal digit: the share of its blocks that is present, 0 none and
  /// f all; with any present block at least 1.
  std::vector<std::string> picture;
  [[nodiscard]] double density() const {
    return rows == 0 || cols == 0 ? 0 : static_cast<double>(blocks) / (static_cast<double>(rows) * cols);
  }
  friend bool operator==(const LayoutSummary&, const LayoutSummary&) = default;
};

/// The result of tuning one problem on one environment.
struct Record {
  /// The problem's and the target's fields with their values, in a fixed order: "operation" "forward",
  /// "layout" (its digest), "block" "32x32" …, "target" "sm_90:132".
  std::vector<std::pair<std::string, std::string>> problem;
  LayoutSummary layout;
  Environment environment;
  MachinePeak peak;
  std::string compiler;           ///< digest of the compiler's sources that was tuned last
  double seconds = 0;             ///< spent on tuning, all runs
  std::vector<Contest> contests;  ///< ascending by n; one for a fixed batch

  [[nodiscard]] std::string_view field(std::string_view name) const;  ///< empty where there is none
  /// Whether every contest was decided by measured times.
  [[nodiscard]] bool measured() const;
  /// The best config of each contest; of one without any times, or whose default was never tried, its
  /// default.
  [[nodiscard]] Plan plan() const;
  friend bool operator==(const Record&, const Record&) = default;
};

}  // namespace sparsekiln
