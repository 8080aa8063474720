#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "autotune/record.h"

namespace sparsekiln::test {

/// The i-th of configs that are told apart by their numbers alone.
inline Config config_of(std::int32_t i) {
  return {.variant = Variant::vector, .tile_n = i + 1, .warps = 1, .table = TableForm::global};
}

inline Candidate measured(std::int32_t i, std::vector<double> samples, std::vector<double> finals = {}) {
  return {.config = config_of(i),
          .outcome = Outcome::measured,
          .samples_us = std::move(samples),
          .final_us = std::move(finals)};
}

inline Candidate modelled(std::int32_t i, double us) {
  return {.config = config_of(i), .outcome = Outcome::modelled, .predicted_us = us};
}

inline Candidate failed(std::int32_t i, std::string reason) {
  return {.config = config_of(i), .outcome = Outcome::failed, .reason = std::move(reason)};
}

inline Candidate untried(std::int32_t i, double predicted_us = 0) {
  return {.config = config_of(i), .predicted_us = predicted_us};
}

/// The first candidate is the default.
inline Contest contest_of(std::vector<Candidate> candidates, std::int64_t n = 64) {
  Contest contest;
  contest.n = n;
  contest.default_config = candidates.front().config;
  contest.candidates = std::move(candidates);
  return contest;
}

/// With a value in every field, none of them the same as another, none the default, and times that have no
/// short decimal form.
inline Record full_record() {
  Candidate best = measured(1, {1.0 / 3, 0.1 + 0.2}, {2.0 / 7, 1e-3 / 3});
  best.relative = {0.7, 11.0 / 9};
  best.predicted_us = 1e5 / 3;
  best.compile_ms = 12.3 / 7;
  best.resources = {.registers = 32,
                    .shared_bytes = 4096,
                    .stack_bytes = 16,
                    .spill_load_bytes = 8,
                    .spill_store_bytes = 4,
                    .constant_bytes = 1024,
                    .code_bytes = std::int64_t{1} << 33};
  Contest contest = contest_of({measured(0, {1.5}),
                                best,
                                failed(2, "its answer is \"wrong\":\n\ty[0] \xe2\x89\xa0 1"),
                                modelled(3, 5.5),
                                {.config = config_of(4), .outcome = Outcome::pruned, .reason = "it spills"},
                                untried(5, 7.25)},
                               32);
  contest.flops = 1e9 / 7;
  contest.bytes = 1e6 / 3;
  contest.floor_us = 0.1;
  contest.pruned = {{"no room", config_of(6), 17}, {"too slow", config_of(7), 3}};
  Record record;
  record.problem = {{"operation", "forward"}, {"layout", "00ff"}, {"target", "cpu:x86-64-v3:2"}};
  record.layout = {.rows = 2, .cols = 3, .blocks = 4, .picture = {"0f1", "a0e"}};
  record.environment = {"Some Processor", 2, 1 << 25, "580.95", "interleaved rounds"};
  record.peak = {100.0 / 3, 20.0 / 7, true};
  record.compiler = "abc123";
  record.seconds = 29.9 / 3;
  record.contests = {contest, contest_of({modelled(8, 1.25)}, 64)};
  return record;
}

}  // namespace sparsekiln::test
