#include "tools/counters_report.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace sparsekiln::tools {
namespace {

constexpr std::uint64_t kSectorBytes = 32;

/// A kernel's lines, and their sum.
struct KernelTotals {
  std::string kernel;
  cuda::CountedLine sum;
  std::uint64_t barriers = 0;
  std::vector<std::pair<std::string, std::uint64_t>> by_kind;  ///< warp instructions, in the order of the PTX
  std::vector<const cuda::CountedLine*> lines;
};

void add_kind(KernelTotals& totals, const cuda::CountedLine& line) {
  for (auto& [kind, executed] : totals.by_kind) {
    if (kind != line.kind) continue;
    executed += line.executed;
    return;
  }
  totals.by_kind.emplace_back(line.kind, line.executed);
}

void add(KernelTotals& totals, const cuda::CountedLine& line) {
  totals.lines.push_back(&line);
  totals.sum.executed += line.executed;
  totals.sum.global_requests += line.global_requests;
  totals.sum.global_sectors += line.global_sectors;
  totals.sum.global_bytes += line.global_bytes;
  totals.sum.shared_wavefronts += line.shared_wavefronts;
  totals.sum.shared_ideal += line.shared_ideal;
  totals.sum.tensor_operations += line.tensor_operations;
  totals.sum.divergent += line.divergent;
  if (line.kind == "barrier") totals.barriers += line.executed;
  add_kind(totals, line);
}

std::vector<KernelTotals> totals_of(const std::vector<cuda::CountedLine>& lines) {
  std::vector<KernelTotals> kernels;
  for (const cuda::CountedLine& line : lines) {
    if (kernels.empty() || kernels.back().kernel != line.kernel) kernels.push_back({.kernel = line.kernel});
    add(kernels.back(), line);
  }
  return kernels;
}

/// `moved` of what was needed; 1 where nothing was.
double ratio(std::uint64_t moved, std::uint64_t needed) {
  return needed == 0 ? 1.0 : static_cast<double>(moved) / static_cast<double>(needed);
}

Json describe(const cuda::CountedLine& line) {
  Json json = {{"ptx_line", line.ptx_line}, {"instruction", line.instruction}, {"kind", line.kind}};
  if (!line.source_file.empty()) json["source"] = fmt::format("{}:{}", line.source_file, line.source_line);
  json["executed"] = line.executed;
  const std::pair<const char*, std::uint64_t> counts[] = {{"global_requests", line.global_requests},
                                                          {"global_sectors", line.global_sectors},
                                                          {"global_bytes", line.global_bytes},
                                                          {"shared_wavefronts", line.shared_wavefronts},
                                                          {"shared_ideal", line.shared_ideal},
                                                          {"tensor_operations", line.tensor_operations},
                                                          {"divergent", line.divergent}};
  for (const auto& [name, count] : counts)
    if (count != 0) json[name] = count;
  return json;
}

Json describe(const KernelTotals& totals, bool annotate) {
  Json kinds = Json::object();
  for (const auto& [kind, executed] : totals.by_kind) kinds[kind] = executed;
  const cuda::CountedLine& sum = totals.sum;
  Json json = {{"kernel", totals.kernel},
               {"warp_instructions", sum.executed},
               {"by_kind", kinds},
               {"tensor_operations", sum.tensor_operations},
               {"global",
                {{"requests", sum.global_requests},
                 {"sectors", sum.global_sectors},
                 {"bytes_needed", sum.global_bytes},
                 {"ratio", ratio(sum.global_sectors * kSectorBytes, sum.global_bytes)}}},
               {"shared",
                {{"wavefronts", sum.shared_wavefronts},
                 {"ideal", sum.shared_ideal},
                 {"ratio", ratio(sum.shared_wavefronts, sum.shared_ideal)}}},
               {"barriers", totals.barriers},
               {"divergent_branches", sum.divergent}};
  if (!annotate) return json;
  json["lines"] = Json::array();
  for (const cuda::CountedLine* line : totals.lines) json["lines"].push_back(describe(*line));
  return json;
}

std::string text_of(const KernelTotals& totals) {
  const cuda::CountedLine& sum = totals.sum;
  std::string text = fmt::format("counters of {}: {} warp instructions\n", totals.kernel, sum.executed);
  for (const auto& [kind, executed] : totals.by_kind) text += fmt::format("  {:<16}{:>14}\n", kind, executed);
  text += fmt::format("tensor operations: {}\n", sum.tensor_operations);
  text += fmt::format("global memory: {} sectors of {} bytes for {} bytes needed, ratio {:.3f}\n",
                      sum.global_sectors, kSectorBytes, sum.global_bytes,
                      ratio(sum.global_sectors * kSectorBytes, sum.global_bytes));
  text += fmt::format("shared memory: {} wavefronts, ideal {}, ratio {:.3f}\n", sum.shared_wavefronts,
                      sum.shared_ideal, ratio(sum.shared_wavefronts, sum.shared_ideal));
  text += fmt::format("barriers: {} (warps that came to one), divergent branches: {}\n", totals.barriers,
                      sum.divergent);
  return text;
}

std::string annotated(const KernelTotals& totals) {
  std::string text = fmt::format("{:>7} {:>12} {:>10} {:>7} {:>10} {:>7} {:>9}  instruction\n", "line",
                                 "executed", "sectors", "ratio", "wavefronts", "ratio", "divergent");
  const auto number = [](std::uint64_t count) {
    return count == 0 ? std::string() : fmt::format("{}", count);
  };
  const auto share = [](std::uint64_t moved, std::uint64_t needed) {
    return moved == 0 ? std::string() : fmt::format("{:.2f}", ratio(moved, needed));
  };
  for (const cuda::CountedLine* line : totals.lines)
    text += fmt::format("{:>7} {:>12} {:>10} {:>7} {:>10} {:>7} {:>9}  {}\n", line->ptx_line, line->executed,
                        number(line->global_sectors),
                        share(line->global_sectors * kSectorBytes, line->global_bytes),
                        number(line->shared_wavefronts), share(line->shared_wavefronts, line->shared_ideal),
                        number(line->divergent), line->instruction);
  return text;
}

}  // namespace

void report_counters(const cuda::Emulator& emulator, bool annotate, Answer& answer) {
  const std::vector<cuda::CountedLine> lines = emulator.counters();
  answer.json["counters"] = Json::array();
  for (const KernelTotals& totals : totals_of(lines)) {
    answer.json["counters"].push_back(describe(totals, annotate));
    answer.text += text_of(totals);
    if (annotate) answer.text += annotated(totals);
  }
}

}  // namespace sparsekiln::tools
