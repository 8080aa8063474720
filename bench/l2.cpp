// What a launch reads and writes beyond an L2 cache: the accesses of its schedule, in the order in which its
// CTAs make them, through a cache that evicts what was used least recently. Prints one JSON document.
//
//   l2 LAYOUT --block 64 --batch 8192 --dtype bf16 [--math tf32] --op forward [--target h100] [--l2-mb 50]
//      [--config CONFIG]
//
// CTAs that a GPU holds at the same time take turns, a step at a time; those that wait begin in the order of
// their numbers as others end. The results are written past the cache. `once` is every operand once.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/binary.h>
#include <sparsekiln/config.h>
#include <sparsekiln/error.h>
#include <sparsekiln/layout.h>
#include <nlohmann/json.hpp>

#include "autotune/default_plan.h"
#include "autotune/prediction.h"
#include "bench/command_line.h"
#include "compiler/block_runs.h"
#include "compiler/problem_kind.h"
#include "compiler/schedule.h"

namespace sparsekiln {
namespace {

/// Pieces of memory, each read or written as a whole.
class Cache {
 public:
  explicit Cache(std::int64_t bytes) : room_(bytes) {}
  void read(std::uint64_t piece, std::int64_t bytes) {
    if (const auto found = held_.find(piece); found != held_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      return;
    }
    from_memory_ += bytes;
    recent_.push_front({piece, bytes});
    held_[piece] = recent_.begin();
    for (room_ -= bytes; room_ < 0; recent_.pop_back()) {
      room_ += recent_.back().bytes;
      held_.erase(recent_.back().piece);
    }
  }
  void write_past(std::int64_t bytes) { from_memory_ += bytes; }
  [[nodiscard]] std::int64_t from_memory() const { return from_memory_; }

 private:
  struct Piece {
    std::uint64_t piece;
    std::int64_t bytes;
  };
  std::int64_t room_;
  std::int64_t from_memory_ = 0;
  std::list<Piece> recent_;
  std::unordered_map<std::uint64_t, std::list<Piece>::iterator> held_;
};

enum Operand : std::uint64_t { kX = 1, kW, kDy };
std::uint64_t piece(Operand operand, std::int64_t tile, std::int64_t number) {
  return operand << 60 | static_cast<std::uint64_t>(tile) << 30 | static_cast<std::uint64_t>(number);
}

/// A CTA: its next step; false at its end.
using Cta = std::function<bool(Cache&)>;

void run(std::deque<Cta> waiting, std::size_t at_once, Cache& cache) {
  std::vector<Cta> running;
  while (!waiting.empty() || !running.empty()) {
    for (; running.size() < at_once && !waiting.empty(); waiting.pop_front())
      running.push_back(std::move(waiting.front()));
    std::erase_if(running, [&](Cta& cta) { return !cta(cache); });
  }
}

std::deque<Cta> ctas_of(const Spmm& problem, const Target& target, const Config& config, std::int64_t n) {
  const auto schedule = std::make_shared<const Schedule>(make_schedule(problem, target, config, n));
  const auto bytes = static_cast<std::int64_t>(size_of(problem.dtype));
  const std::int64_t tiles = std::max<std::int64_t>(1, (n + config.tile_n - 1) / config.tile_n);
  const std::int64_t rows = std::min<std::int64_t>(tiles_at_once(problem, config, n), kMostGridRows);
  const std::int64_t of_x = std::int64_t{config.tile_n} * problem.block.in * bytes;
  const std::int64_t of_w = std::int64_t{problem.block.out} * problem.block.in * bytes;
  const std::int64_t of_y = std::int64_t{config.tile_n} * problem.block.out * config.rows * config.merge *
                            static_cast<std::int64_t>(size_of(problem.out_dtype));
  std::deque<Cta> ctas;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int32_t worker = 0; worker < schedule->workers(); ++worker)
      ctas.push_back([=, tile = row, item = std::int32_t{0}, step = std::int32_t{0}](Cache& cache) mutable {
        const auto items = schedule->items_of(worker);
        while (tile < tiles && item == static_cast<std::int32_t>(items.size())) {
          item = 0;
          tile += rows;
        }
        if (tile >= tiles) return false;
        const Item& now = items[static_cast<std::size_t>(item)];
        if (step < now.steps) {
          const Step& one = schedule->steps_of(now)[static_cast<std::size_t>(step)];
          if ((one.flags & kSameInput) == 0) cache.read(piece(kX, tile, one.input()), of_x);
          for (const std::int32_t block : one.block)
            if (block >= 0) cache.read(piece(kW, 0, block), of_w);
          ++step;
        }
        if (step == now.steps) {
          if (now.part == 0) cache.write_past(of_y);
          step = 0;
          ++item;
        }
        return true;
      });
  return ctas;
}

std::deque<Cta> ctas_of(const Sddmm& gradient, const Target& target, const Config& config, std::int64_t n) {
  const auto schedule = std::make_shared<const BlockRuns>(make_block_runs(gradient, target, config));
  const auto layout = std::make_shared<const Layout>(gradient.layout);
  const auto bytes = static_cast<std::int64_t>(size_of(gradient.dtype));
  const std::int64_t chunks = (n + config.tile_n - 1) / config.tile_n;
  const std::int64_t of_x = std::int64_t{config.tile_n} * gradient.block.in * bytes;
  const std::int64_t of_dy = std::int64_t{config.tile_n} * gradient.block.out * bytes;
  const std::int64_t of_dw =
      gradient.block_elements() * static_cast<std::int64_t>(size_of(gradient.out_dtype));
  std::deque<Cta> ctas;
  for (std::int32_t worker = 0; worker < schedule->workers(); ++worker)
    ctas.push_back([=, run = std::size_t{0}, chunk = std::int64_t{0}](Cache& cache) mutable {
      const auto runs = schedule->runs_of(worker);
      if (run == runs.size()) return false;
      const BlockRun& now = runs[run];
      cache.read(piece(kDy, chunk, now.row), of_dy);
      for (std::int32_t block = now.first; block < now.first + now.blocks; ++block)
        cache.read(piece(kX, chunk, layout->col()[static_cast<std::size_t>(block)]), of_x);
      if (++chunk == chunks) {
        cache.write_past(of_dw * now.blocks);
        chunk = 0;
        ++run;
      }
      return true;
    });
  return ctas;
}

int run_program(bench::CommandLine& line) {
  Problem problem;
  problem.block = parse_block_shape(line.take("--block").value_or("32"));
  problem.batch = parse_batch(line.take("--batch").value_or("64"));
  problem.dtype = problem.out_dtype = parse_dtype(line.take("--dtype").value_or("bf16"));
  problem.math = parse_math(line.take("--math").value_or("ieee"));
  problem.operation = parse_operation(line.take("--op").value_or("forward"));
  const Target target = Target::parse(line.take("--target").value_or("h100"));
  const double megabytes = std::stod(line.take("--l2-mb").value_or("50"));
  const std::optional<std::string> pinned = line.take("--config");
  if (line.rest().size() != 2) {
    fmt::print(stderr, "l2 takes one layout\n");
    return 2;
  }
  problem.layout = Layout::load(line.rest()[1]);
  const std::int64_t n = problem.batch.bound();
  const Config config = pinned ? parse_config(*pinned) : choose_plan(problem, target).back().config;
  Cache cache(static_cast<std::int64_t>(megabytes * 1e6));
  const auto at_once = static_cast<std::size_t>(target.workers) * static_cast<std::size_t>(config.split);
  std::visit([&](const auto& computed) { run(ctas_of(computed, target, config, n), at_once, cache); },
             computed_by(problem));
  const double once = floor_of(problem, n).bytes;
  fmt::print("{}\n", nlohmann::json{{"config", to_string(config)},
                                    {"once_bytes", once},
                                    {"memory_bytes", cache.from_memory()},
                                    {"ratio", static_cast<double>(cache.from_memory()) / once},
                                    {"predicted_us", predict(problem, target, config, n).us}}
                         .dump());
  return 0;
}

}  // namespace
}  // namespace sparsekiln

int main(int argc, char** argv) {
  try {
    sparsekiln::bench::CommandLine line(argc, argv);
    return sparsekiln::run_program(line);
  } catch (const std::exception& error) {
    fmt::print(stderr, "l2: {}\n", error.what());
    return 2;
  }
}
