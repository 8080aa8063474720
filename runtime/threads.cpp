#include <sparsekiln/threads.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/host_threads.h"

namespace sparsekiln {
namespace {

/// 0 where the variable is not there, or is no number of threads.
std::int32_t number_in(const char* variable) {
  const char* const value = std::getenv(variable);
  if (value == nullptr) return 0;
  const std::string_view text(value);
  std::int32_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = status == std::errc{} && (end == text.data() + text.size() || *end == ',');
  return whole && number >= 1 && number <= kMostThreads ? number : 0;
}

std::atomic<std::int32_t> given{0};

}  // namespace

std::int32_t stated_threads() {
  static const std::int32_t of_variable = number_in("SPARSEKILN_THREADS");
  const std::int32_t now = given.load(std::memory_order_relaxed);
  return now != 0 ? now : of_variable;
}

std::int32_t threads() {
  if (const std::int32_t stated = stated_threads()) return stated;
  static const std::int32_t usual = [] {
    const std::int32_t of_openmp = number_in("OMP_NUM_THREADS");
    return of_openmp != 0 ? of_openmp : host_threads();
  }();
  return usual;
}

void set_threads(std::int32_t threads) {
  if (threads < 0 || threads > kMostThreads)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("{} threads: 1 to {}, or 0 for the usual number, would work", threads, kMostThreads));
  given.store(threads, std::memory_order_relaxed);
}

}  // namespace sparsekiln
