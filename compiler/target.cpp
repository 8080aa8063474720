#include <sparsekiln/target.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>
#include <sched.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/backend.h"
#include "compiler/cpu/object.h"
#include "compiler/cuda/architectures.h"
#include "compiler/host_threads.h"

namespace sparsekiln {
namespace {

constexpr std::int32_t kMaxWorkers = 1 << 16;

/// The target that `name` stands for, one of the backends'; `text` is what it was written in.
Target find_target(std::string_view name, std::string_view text) {
  for (const Backend* const backend : backends())
    if (std::optional<Target> target = backend->find_target(name)) return *std::move(target);
  std::string known;
  for (const Backend* const backend : backends())
    known += (known.empty() ? "" : ", ") + backend->target_names();
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("target '{}' is not known: one of {}; each with :WORKERS at will", printable(text), known));
}

}  // namespace

std::int32_t host_threads() noexcept {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

Target Target::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  Target target = find_target(text.substr(0, colon), text);
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), target.workers);
    if (status != std::errc{} || end != digits.data() + digits.size() || target.workers < 1 ||
        target.workers > kMaxWorkers)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("target '{}': the number of workers after the colon is 1 to {}",
                              printable(text), kMaxWorkers));
  }
  return target;
}

Target Target::host() { return {Kind::cpu, cpu::host_level(), host_threads()}; }

int Target::compute_capability() const { return kind == Kind::cuda ? cuda::capability_of(arch) : 0; }

std::string Target::to_string() const { return fmt::format("{}:{}", arch, workers); }

}  // namespace sparsekiln
