#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/kernels/suite.h"

// The kernel suite: test_kernels [--target cpu|cuda|cuda:1|emulated|emulated:sm_80] [--every N]
// [doctest's own options]. With --every, each Nth of the case list is run.

namespace {

#ifdef SPARSEKILN_CPU
constexpr const char* kDefaultTarget = "cpu";
#else
constexpr const char* kDefaultTarget = "emulated";
#endif

/// True where doctest will only print something: that needs no device.
bool only_asks(const std::vector<const char*>& arguments) {
  constexpr std::array<std::string_view, 8> kQueries = {"--help",  "-h", "--version",         "-v",
                                                        "--count", "-c", "--list-test-cases", "-ltc"};
  return std::any_of(arguments.begin(), arguments.end(), [&](std::string_view argument) {
    return std::find(kQueries.begin(), kQueries.end(), argument) != kQueries.end();
  });
}

}  // namespace

int main(int count, char** values) {
  std::string target = kDefaultTarget;
  std::size_t every = 1;
  std::vector<const char*> rest;
  for (int i = 0; i < count; ++i) {
    const std::string_view argument = values[i];
    if (argument == "--target" && i + 1 < count)
      target = values[++i];
    else if (argument.starts_with("--target="))
      target = argument.substr(9);
    else if (argument == "--every" && i + 1 < count)
      every = std::strtoull(values[++i], nullptr, 10);
    else
      rest.push_back(values[i]);
  }
  if (every == 0) {
    std::fprintf(stderr, "test_kernels: --every takes a number from 1 on\n");
    return 1;
  }
  doctest::Context context(static_cast<int>(rest.size()), rest.data());
  std::optional<sparsekiln::test::Suite> suite;
  if (!only_asks(rest)) {
    try {
      suite.emplace(target, every);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "test_kernels: %s\n", error.what());
      return 1;
    }
    std::printf("kernel suite on %s\n", suite->device()->description().c_str());
    if (suite->emulated())
      std::printf("seeds 0, 1, and that of today: SPARSEKILN_TEST_SEED=%llu\n",
                  static_cast<unsigned long long>(sparsekiln::test::Suite::seed_of_today()));
  }
  return context.run();
}
