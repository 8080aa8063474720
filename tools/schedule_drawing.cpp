#include "tools/schedule_drawing.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace sparsekiln::tools {
namespace {

constexpr std::int32_t kMostBars = 32;
constexpr std::int32_t kBarWidth = 48;
constexpr std::int32_t kMostDrawn = 64;
constexpr std::string_view kSymbols = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

char symbol_of(std::int32_t worker) { return kSymbols[static_cast<std::size_t>(worker) % kSymbols.size()]; }

/// "3-5, 9": the block rows of a worker's items, in ascending order.
std::string rows_of(const Schedule& schedule, std::int32_t worker) {
  std::vector<std::int32_t> rows;
  for (const Item& item : schedule.items_of(worker))
    for (std::int32_t tile = item.tile; tile < item.tile + schedule.rows; ++tile)
      for (const std::int32_t row : schedule.rows_of_tile(tile))
        if (row >= 0) rows.push_back(row);
  std::sort(rows.begin(), rows.end());
  constexpr std::size_t kMostText = 40;
  std::string text;
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    if (text.size() > kMostText) return text + ", …";
    text += text.empty() ? "" : ", ";
    text +=
        end - begin == 1 ? fmt::format("{}", rows[begin]) : fmt::format("{}-{}", rows[begin], rows[end - 1]);
    begin = end;
  }
  return text;
}

std::string bars(const Schedule& schedule) {
  std::int64_t largest = 1;
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker)
    largest = std::max(largest, schedule.cost(worker));
  std::string text = "worker  steps\n";
  const std::int32_t shown = std::min(schedule.workers(), kMostBars);
  for (std::int32_t worker = 0; worker < shown; ++worker) {
    std::string bar;
    for (std::int64_t i = 0; i < schedule.cost(worker) * kBarWidth / largest; ++i) bar += "█";
    text += fmt::format("{} {:>4} {:>6}  {:<{}}  rows {}\n", symbol_of(worker), worker, schedule.cost(worker),
                        bar, kBarWidth, rows_of(schedule, worker));
  }
  if (shown < schedule.workers()) text += fmt::format("… and {} more workers\n", schedule.workers() - shown);
  return text;
}

/// The worker of every block: a grid with a line for each place.
std::string grid(const Layout& layout, const Schedule& schedule) {
  const auto cols = static_cast<std::size_t>(layout.cols());
  std::vector<std::string> lines(schedule.row_of_place.size(), std::string(cols, '.'));
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker)
    for (const Item& item : schedule.items_of(worker))
      for (const Step& step : schedule.steps_of(item))
        for (std::int32_t row = 0; row < schedule.merge; ++row)
          if (step.block[static_cast<std::size_t>(row)] >= 0)
            lines[static_cast<std::size_t>(step.output() * schedule.merge + row)]
                 [static_cast<std::size_t>(step.input())] = symbol_of(worker);
  const auto row_group = static_cast<std::size_t>(schedule.rows * schedule.merge);
  std::string text;
  for (std::size_t place = 0; place < lines.size(); ++place) {
    if (row_group > 1 && place > 0 && place % row_group == 0)
      text += fmt::format("{:>6}  {:->{}}\n", "", "", cols);
    if (schedule.row_of_place[place] >= 0)
      text += fmt::format("{:>6}  {}\n", schedule.row_of_place[place], lines[place]);
  }
  return text;
}

}  // namespace

std::int64_t waves(const Schedule& schedule, const Target& target, const Config& config, std::int64_t n) {
  const std::int64_t tiles = (n + config.tile_n - 1) / config.tile_n;
  const std::int64_t at_once = std::max<std::int64_t>(std::int64_t{target.workers} * config.split, 1);
  return (schedule.workers() * tiles + at_once - 1) / at_once;
}

std::string draw_schedule(const Problem& problem, const Schedule& schedule, const Target& target,
                          const Config& config, std::int64_t n) {
  const ScheduleFigures found = figures(schedule);
  const std::int64_t rounds = balanced_rounds(Spmm(problem), config, n);
  std::string text = fmt::format(
      "schedule for {} at n = {}: {}\n"
      "{} workers of {} steps on average, {} at most (balance {:.3f}{}), waves: {}\n"
      "tiles of x: {} loaded, {} by single rows ({:.1f} % saved); blocks filled with zeros: {}{}\n"
      "split row groups: {}, partial sums: {}\n",
      target.to_string(), n, to_string(config), schedule.workers(), fmt::format("{:.1f}", found.mean_cost),
      found.largest_cost, found.balance(),
      rounds == 1 ? "" : fmt::format(", after {} rounds {:.3f}", rounds, schedule.balance(rounds)),
      waves(schedule, target, config, n), found.loads, found.one_row_loads, 100 * found.saved(), found.filled,
      found.without_blocks == 0 ? "" : fmt::format(", steps without blocks: {}", found.without_blocks),
      schedule.counters, schedule.partials);
  text += bars(schedule);
  const bool small = problem.layout.rows() <= kMostDrawn && problem.layout.cols() <= kMostDrawn;
  if (small) text += "block row: its blocks, each with its worker\n" + grid(problem.layout, schedule);
  return text;
}

}  // namespace sparsekiln::tools
