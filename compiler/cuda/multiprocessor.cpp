#include "compiler/cuda/multiprocessor.h"

#include <algorithm>

namespace sparsekiln::cuda {
namespace {

constexpr std::int64_t kKiB = 1024;

struct Row {
  int capability;  ///< the first that it holds for
  Multiprocessor figures;
};

constexpr Row kRows[] = {
    {75, {64 * kKiB, 64 * kKiB, 0, 256, 1024, 16}},      {80, {164 * kKiB, 163 * kKiB, kKiB, 128, 2048, 32}},
    {86, {100 * kKiB, 99 * kKiB, kKiB, 128, 1536, 16}},  {87, {164 * kKiB, 163 * kKiB, kKiB, 128, 1536, 16}},
    {88, {100 * kKiB, 99 * kKiB, kKiB, 128, 1536, 16}},  {89, {100 * kKiB, 99 * kKiB, kKiB, 128, 1536, 24}},
    {90, {228 * kKiB, 227 * kKiB, kKiB, 128, 2048, 32}}, {110, {228 * kKiB, 227 * kKiB, kKiB, 128, 1536, 24}},
    {120, {100 * kKiB, 99 * kKiB, kKiB, 128, 1536, 24}},
};

}  // namespace

Multiprocessor multiprocessor(const Target& target) {
  Multiprocessor found = kRows[0].figures;
  const int capability = target.compute_capability();
  for (const Row& row : kRows)
    if (row.capability <= capability) found = row.figures;
  return found;
}

std::int32_t resident_ctas(const Target& target, std::int32_t threads, std::int64_t shared_bytes) {
  const Multiprocessor figures = multiprocessor(target);
  if (shared_bytes > figures.shared_per_cta) return 0;
  const std::int64_t wanted = shared_bytes + figures.shared_reserved;
  const std::int64_t given = (wanted + figures.shared_unit - 1) / figures.shared_unit * figures.shared_unit;
  const auto by_shared = static_cast<std::int32_t>(
      given == 0 ? figures.ctas : std::min<std::int64_t>(figures.shared_bytes / given, figures.ctas));
  return std::min(by_shared, figures.threads / threads);
}

}  // namespace sparsekiln::cuda
