#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <sparsekiln/binary.h>

#include "autotune/architecture.h"
#include "autotune/event.h"
#include "autotune/record.h"

namespace sparsekiln {

/// What a tuner asks of a machine, for one contest.
class Workbench {
 public:
  virtual ~Workbench() = default;

  /// A candidate's Binary, or why there is none.
  struct Compiled {
    std::shared_ptr<const Binary> binary;
    std::string failure;
    double ms = 0;         ///< wall time
    bool stopped = false;  ///< not its fault: there was no time left
  };
  using Done = std::function<void(std::size_t, Compiled)>;
  /// Compiles all of them, a few at a time, none longer than a limit, and none so that this process could
  /// fail; `done` gets each, by its place in `configs`, in any order. Ends early once `stop` says so.
  virtual void compile(std::span<const Config> configs, const Done& done,
                       const std::function<bool()>& stop) = 0;
  /// Loads a compiled candidate and holds its answer to the oracles. Returns what is wrong with it; empty
  /// where nothing is. May throw Error, too.
  [[nodiscard]] virtual std::string check(const Config& config, std::shared_ptr<const Binary> binary) = 0;
  /// Whether there is a clock that means something.
  [[nodiscard]] virtual bool measures() const = 0;
  /// Microseconds a launch, one sample, of a candidate that passed. Throws Error where a launch fails.
  [[nodiscard]] virtual double sample(const Config& config) = 0;
  /// The candidate will not be asked for again.
  virtual void drop(const Config& config) = 0;
};

/// What tuning one contest may take.
struct TuneLimits {
  std::chrono::duration<double> budget{30};
  std::function<bool()> stop = {};  ///< asked often; once true, what is known has to do
};

/// A contest of all candidates of the space that may win, their times predicted: the default plan's config
/// first, then the fastest first by prediction. Those that the model gives no chance are pruned.
[[nodiscard]] Contest make_contest(const Problem& problem, const Target& target, const RangedConfig& chosen,
                                   const Part& part = {});

/// The same with what an earlier contest of the same problem found out. What the space has no more, but was
/// measured, stays. Results of another compiler count only where they were measured: the rest may work with
/// this one.
[[nodiscard]] Contest merged(Contest fresh, const Contest& earlier, bool same_compiler);

/// Nothing is left to try, and the finals were held (where times can be measured).
[[nodiscard]] bool settled(const Contest& contest);

/// Tries the candidates in their order: compiles, checks, takes a few samples of each; then halves the field,
/// taking more samples of those that stay; then times the best few and the default in rounds. The first part
/// takes at most three fifths of the budget, and leaves untried what it does not come to.
///
/// `contest` is changed through events alone, each of which `note` gets, too.
void tune(Contest& contest, Workbench& bench, const TuneLimits& limits,
          const std::function<void(const Event&)>& note);

}  // namespace sparsekiln
