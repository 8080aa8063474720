// What a launch reads and writes beyond an L2 cache: the accesses of its schedule, in the order in which its
// CTAs make them, through a cache that evicts what was used least recently. Prints one JSON document.
//
//   l2 LAYOUT --block 64 --batch 8192 --dtype bf16 [--math tf32] --op forward [--target h100] [--l2-mb 26.5]
//      [--config CONFIG] [--conv 'kernel=3x3 padding=1 input=56x56']
//
// CTAs that a GPU holds at the same time take turns, a step at a time; those that wait begin in the order of
// their numbers as others end. The results are written past the cache. Each position of a convolution's x is
// read for itself. `once` is every operand once. With partial sums: those of split rows, and of slices of the
// batch, are written to the cache too, and to memory as far as they are evicted from it.

#include <algorithm>
#include <array>
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
#include <sparsekiln/convolution.h>
#include <sparsekiln/error.h>
#include <sparsekiln/layout.h>
#include <nlohmann/json.hpp>

#include "autotune/default_plan.h"
#include "autotune/prediction.h"
#include "bench/command_line.h"
#include "compiler/block_runs.h"
#include "compiler/cuda/batch_slices.h"
#include "compiler/problem_kind.h"
#include "compiler/schedule.h"
#include "system/standard_streams.h"

namespace sparsekiln {
namespace {

/// Megabytes of a cache of this kind that reads from memory what an H100 does with its 50: within 15 % of
/// what Nsight Compute counted (bench/measured/h100-2026-11-27.dram.json, tests/bench/model_ratchet_test.py).
constexpr const char* kLikeAnH100 = "26.5";

/// Pieces of memory, each read or written as a whole.
class Cache {
 public:
  explicit Cache(std::int64_t bytes) : room_(bytes) {}
  void read(std::uint64_t piece, std::int64_t bytes) {
    if (!hold(piece, bytes)) from_memory_ += bytes;
  }
  /// Memory has it only when it is evicted.
  void write(std::uint64_t piece, std::int64_t bytes) {
    hold(piece, bytes);
    recent_.front().written = true;
  }
  void write_past(std::int64_t bytes) { from_memory_ += bytes; }
  /// Bytes that were read from memory and written to it.
  [[nodiscard]] std::int64_t from_memory() const { return from_memory_; }

 private:
  struct Piece {
    std::uint64_t piece;
    std::int64_t bytes;
    bool written = false;
  };
  /// Puts a piece first; returns whether it was held before.
  bool hold(std::uint64_t piece, std::int64_t bytes) {
    if (const auto found = held_.find(piece); found != held_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      return true;
    }
    recent_.push_front({piece, bytes});
    held_[piece] = recent_.begin();
    for (room_ -= bytes; room_ < 0 && recent_.size() > 1; recent_.pop_back()) {
      const Piece& last = recent_.back();
      room_ += last.bytes;
      if (last.written) from_memory_ += last.bytes;
      held_.erase(last.piece);
    }
    return false;
  }

  std::int64_t room_;
  std::int64_t from_memory_ = 0;
  std::list<Piece> recent_;
  std::unordered_map<std::uint64_t, std::list<Piece>::iterator> held_;
};

enum Operand : std::uint64_t { kX = 1, kW, kDy, kParts };
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

/// The rows of x that a tile of the product reads: its own, or of a convolution those where a tap finds them
/// (templates/lattice.cuh).
class RowsOfX {
 public:
  template <class Computed>
  RowsOfX(const Computed& computed, bool mirrored)
      : row_bytes_(computed.block.in * static_cast<std::int64_t>(size_of(computed.dtype))),
        convolution_(computed.convolution),
        mirrored_(mirrored) {
    if (!computed.correlation) return;
    points_ = computed.correlation->points;
    in_step_ = computed.correlation->in_step;
    out_step_ = computed.correlation->out_step;
    input_ = computed.correlation->input;
  }

  /// `column`: of the layout; `count` rows of the product from `first` on, which are tile number `tile`.
  void read(Cache& cache, std::int32_t column, std::int64_t tile, std::int64_t first,
            std::int64_t count) const {
    if (!convolution_.present()) return cache.read(piece(kX, tile, column), count * row_bytes_);
    const std::int32_t taps = convolution_.taps();
    const std::array<std::int64_t, 3> moved = shift(column % taps);
    for (std::int64_t point = first; point < first + count; ++point)
      if (const std::int64_t position = position_of(point, moved); position >= 0)
        cache.read(piece(kX, column / taps, position), row_bytes_);
  }

 private:
  [[nodiscard]] std::array<std::int64_t, 3> shift(std::int32_t tap) const {
    std::array<std::int64_t, 3> moved{};
    for (std::size_t i = 3; i-- > 0; tap /= convolution_.kernel[i]) {
      const std::int64_t forward = std::int64_t{tap % convolution_.kernel[i]} * convolution_.dilation[i] -
                                   convolution_.padding_before[i];
      moved[i] = mirrored_ ? -quotient_down(forward, out_step_[i]) : forward;
    }
    return moved;
  }
  [[nodiscard]] std::int64_t position_of(std::int64_t point, const std::array<std::int64_t, 3>& moved) const {
    std::array<std::int64_t, 3> at{};
    for (std::size_t i = 3; i-- > 0; point /= points_[i]) at[i] = point % points_[i];
    std::int64_t position = point;  // the image
    for (std::size_t i = 0; i < 3; ++i) {
      const std::int64_t coordinate = at[i] * in_step_[i] + moved[i];
      if (coordinate < 0 || coordinate >= input_[i]) return -1;
      position = position * input_[i] + coordinate;
    }
    return position;
  }
  static std::int64_t quotient_down(std::int64_t value, std::int64_t divisor) {
    return value >= 0 ? value / divisor : -((divisor - 1 - value) / divisor);
  }

  std::int64_t row_bytes_;
  Convolution convolution_;
  bool mirrored_;
  Convolution::Extents points_{}, in_step_{}, out_step_{}, input_{};
};

/// Partial sums: the last of several CTAs to arrive reads what all of them wrote.
class PartialSums {
 public:
  explicit PartialSums(bool counted) : counted_(counted) {}
  /// Part `part` of `parts` of so many bytes, which have the numbers from `first` on.
  void arrive(Cache& cache, std::int64_t bytes, std::int64_t tile, std::int64_t first, std::int64_t part,
              std::int64_t parts) {
    if (!counted_) return;
    cache.write(piece(kParts, tile, first + part), bytes);
    written_ += bytes;
    if (++arrived_[piece(kParts, tile, first)] < parts) return;
    for (std::int64_t i = 0; i < parts; ++i) cache.read(piece(kParts, tile, first + i), bytes);
  }
  [[nodiscard]] std::int64_t written() const { return written_; }

 private:
  bool counted_;
  std::int64_t written_ = 0;
  std::unordered_map<std::uint64_t, std::int64_t> arrived_;
};

std::deque<Cta> ctas_of(const Spmm& problem, const Target& target, const Config& config, std::int64_t n,
                        Cache& cache, PartialSums& sums) {
  const auto schedule = std::make_shared<const Schedule>(make_schedule(problem, target, config, n));
  const auto bytes = static_cast<std::int64_t>(size_of(problem.dtype));
  const std::int64_t points = problem.product_rows(n);
  const std::int64_t tiles = std::max<std::int64_t>(1, problem.batch_tiles(n, config));
  const std::int64_t rows = std::min<std::int64_t>(tiles_at_once(problem, config, n), kMostGridRows);
  const std::int64_t of_w = std::int64_t{problem.block.out} * problem.block.in * bytes;
  const auto x = std::make_shared<const RowsOfX>(problem, problem.by_columns());
  const std::int64_t of_part =
      std::int64_t{4} * config.tile_n * problem.block.out * config.rows * config.merge;
  cache.write_past(problem.y_rows(n) * problem.out_features() *
                   static_cast<std::int64_t>(size_of(problem.out_dtype)));
  std::deque<Cta> ctas;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int32_t worker = 0; worker < schedule->workers(); ++worker)
      ctas.push_back([=, &sums, tile = row, item = std::int32_t{0},
                      step = std::int32_t{0}](Cache& through) mutable {
        const auto items_of_tile = [&] {
          return schedule->items_of(changes_places(config) ? schedule->worker_of_round(worker, tile / rows)
                                                           : worker);
        };
        auto items = items_of_tile();
        while (tile < tiles && item == static_cast<std::int32_t>(items.size())) {
          item = 0;
          tile += rows;
          items = items_of_tile();
        }
        if (tile >= tiles) return false;
        const Item& now = items[static_cast<std::size_t>(item)];
        if (step < now.steps) {
          const Step& one = schedule->steps_of(now)[static_cast<std::size_t>(step)];
          const std::int64_t first = tile * config.tile_n;
          const bool loads = (one.flags & kAlone) == 0 || one.present();
          if (loads && (one.flags & kSameInput) == 0)
            x->read(through, one.input(), tile, first, std::min<std::int64_t>(config.tile_n, points - first));
          for (const std::int32_t block : one.block)
            if (block >= 0) through.read(piece(kW, 0, block), of_w);
          ++step;
        }
        if (step == now.steps) {
          if (now.parts > 1) sums.arrive(through, of_part, tile, now.partial, now.part, now.parts);
          step = 0;
          ++item;
        }
        return true;
      });
  return ctas;
}

/// Rows of what taps displace that some tap reads: strides may leave some out.
std::int64_t rows_read(const Sddmm& gradient, std::int64_t n) {
  if (!gradient.correlation) return gradient.x_rows(n);
  const Correlation& lattice = *gradient.correlation;
  const Convolution::Extents& step = lattice.in_step;
  const auto phases = static_cast<std::int64_t>(lattice.phases.size());
  return n * (phases == std::int64_t{step[0]} * step[1] * step[2] ? lattice.input_positions()
                                                                  : phases * lattice.image_lattice_points());
}

std::deque<Cta> ctas_of(const Sddmm& gradient, const Target& target, const Config& config, std::int64_t n,
                        Cache& cache, PartialSums& sums) {
  const auto schedule = std::make_shared<const BlockRuns>(make_block_runs(gradient, target, config));
  const auto layout = std::make_shared<const Layout>(gradient.layout);
  const auto bytes = static_cast<std::int64_t>(size_of(gradient.dtype));
  const std::int64_t rows = gradient.dy_rows(n);
  const std::int64_t displaced = rows_read(gradient, n);  // of x, or of dy where they are exchanged
  const std::int64_t others =
      gradient.correlation ? n * gradient.correlation->output_positions() : gradient.dy_rows(n);
  const std::int64_t chunks = (gradient.tiled_rows(n, config) + config.tile_n - 1) / config.tile_n;
  const std::int64_t of_dy = gradient.block.out * bytes;
  const std::int64_t slices = cuda::batch_slices(gradient, target, config, schedule->items());
  const bool grouped = groups_blocks(config);
  const GroupShape group = grouped ? group_shape(gradient, config) : GroupShape();
  // A chunk's share of rows. Tiles of positions are others than those in their order, but as many; what a
  // neighbour reads as well of x, beyond its border, is in L2 then.
  const auto share = [=](std::int64_t all, std::int64_t chunk) {
    return all * (chunk + 1) / chunks - all * chunk / chunks;
  };
  const auto x = std::make_shared<const RowsOfX>(gradient, false);
  const std::int64_t of_part =
      std::int64_t{4} * config.rows *
      (grouped ? std::int64_t{group.piece.out} * group.piece.in : gradient.block_elements());
  cache.write_past(gradient.layout.blocks() * gradient.block_elements() *
                   static_cast<std::int64_t>(size_of(gradient.out_dtype)));
  std::deque<Cta> ctas;
  for (std::int32_t worker = 0; worker < schedule->workers(); ++worker)
    for (std::int64_t slice = 0; slice < slices; ++slice) {
      const std::int64_t begin = chunks * slice / slices;
      const std::int64_t end = chunks * (slice + 1) / slices;
      if (grouped) {
        ctas.push_back([=, &sums, at = std::size_t{0}, chunk = begin](Cache& through) mutable {
          const auto groups = schedule->groups_of(worker);
          if (at == groups.size()) return false;
          const BlockGroup& now = groups[at];
          if (chunk < end) {
            for (const std::int32_t tile : now.outs)
              through.read(piece(kDy, chunk, tile), share(others, chunk) * group.piece.out * bytes);
            for (const std::int32_t tile : now.ins)
              through.read(piece(kX, chunk, tile / group.depths),
                           share(displaced, chunk) * group.piece.in * bytes);
            ++chunk;
          }
          if (chunk == end) {
            const auto number = static_cast<std::int32_t>(&now - schedule->groups.data());
            if (slices > 1) sums.arrive(through, of_part, 0, number * slices, slice, slices);
            chunk = begin;
            ++at;
          }
          return true;
        });
        continue;
      }
      ctas.push_back([=, &sums, run = std::size_t{0}, chunk = begin](Cache& through) mutable {
        const auto runs = schedule->runs_of(worker);
        if (run == runs.size()) return false;
        const BlockRun& now = runs[run];
        if (chunk < end) {
          const std::int64_t first = chunk * config.tile_n;
          const std::int64_t count = std::min<std::int64_t>(config.tile_n, rows - first);
          through.read(piece(kDy, chunk, now.row), count * of_dy);
          for (std::int32_t block = now.first; block < now.first + now.blocks; ++block)
            x->read(through, layout->col()[static_cast<std::size_t>(block)], chunk, first, count);
          ++chunk;
        }
        if (chunk == end) {
          if (slices > 1) sums.arrive(through, of_part, 0, now.first * slices, slice, slices);
          chunk = begin;
          ++run;
        }
        return true;
      });
    }
  return ctas;
}

void model(bench::CommandLine& line) {
  Problem problem;
  problem.block = parse_block_shape(line.take("--block").value_or("32"));
  problem.batch = parse_batch(line.take("--batch").value_or("64"));
  problem.dtype = problem.out_dtype = parse_dtype(line.take("--dtype").value_or("bf16"));
  problem.math = parse_math(line.take("--math").value_or("ieee"));
  problem.operation = parse_operation(line.take("--op").value_or("forward"));
  problem.convolution = parse_convolution(line.take("--conv").value_or("none"));
  const Target target = Target::parse(line.take("--target").value_or("h100"));
  const double megabytes = std::stod(line.take("--l2-mb").value_or(kLikeAnH100));
  const std::optional<std::string> text = line.take("--config");
  problem.layout = Layout::load(line.only("layout"));
  const std::int64_t n = problem.batch.bound();
  const Config config =
      (text ? pinned(parse_config(*text), problem, target) : choose_plan(problem, target)).back().config;
  const auto at_once = static_cast<std::size_t>(target.workers) * static_cast<std::size_t>(config.split);
  const double once = floor_of(problem, n).bytes;
  const auto modelled = [&](PartialSums sums) {
    Cache cache(static_cast<std::int64_t>(megabytes * 1e6));
    std::visit(
        [&](const auto& computed) { run(ctas_of(computed, target, config, n, cache, sums), at_once, cache); },
        computed_by(problem, target));
    return nlohmann::json{{"memory_bytes", cache.from_memory()},
                          {"ratio", static_cast<double>(cache.from_memory()) / once},
                          {"partial_sums_bytes", sums.written()}};
  };
  nlohmann::json answer = modelled(PartialSums(false));
  answer.erase("partial_sums_bytes");
  answer.update({{"config", to_string(config)},
                 {"once_bytes", once},
                 {"with_partial_sums", modelled(PartialSums(true))},
                 {"predicted_us", predict(problem, target, config, n).us}});
  write_results(answer.dump() + "\n");
}

}  // namespace
}  // namespace sparsekiln

int main(int argc, char** argv) { return sparsekiln::bench::run_program(argc, argv, sparsekiln::model); }
