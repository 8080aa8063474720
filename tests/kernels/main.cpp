#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/kernels/share.h"
#include "tests/kernels/suite.h"

// The kernel suite: test_kernels [--target cpu|cuda|cuda:1|emulated|emulated:sm_80] [--every N]
// [doctest's own options]. With --every, each Nth of the case list is run.
// Several processes share it with --claims FILE --store DIR --until SECONDS [--sample N] [--only WORDS]
// (share.h).

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

std::vector<sparsekiln::test::SharedCase> all_cases() {
  std::vector<sparsekiln::test::SharedCase> cases;
  for (const doctest::detail::TestCase& test : doctest::detail::getRegisteredTests())
    cases.push_back({test.m_name, std::string_view(test.m_test_suite) == "tables"});
  return cases;
}

}  // namespace

int main(int count, char** values) {
  std::string target = kDefaultTarget;
  std::string every = "1";
  std::string claims;
  std::string store;
  std::string until = "0";
  std::string sample = "1";
  std::string only;
  const std::map<std::string_view, std::string*> known = {
      {"--target", &target}, {"--every", &every},   {"--claims", &claims}, {"--store", &store},
      {"--until", &until},   {"--sample", &sample}, {"--only", &only}};
  std::vector<const char*> rest;
  for (int i = 0; i < count; ++i) {
    const std::string_view argument = values[i];
    const std::size_t equals = argument.find('=');
    const auto place = known.find(argument.substr(0, equals));
    if (place == known.end())
      rest.push_back(values[i]);
    else if (equals != argument.npos)
      *place->second = argument.substr(equals + 1);
    else if (i + 1 < count)
      *place->second = values[++i];
  }
  const sparsekiln::test::ShareOptions share{.claims = claims,
                                             .store = store,
                                             .until = std::strtod(until.c_str(), nullptr),
                                             .only = only,
                                             .sample = std::strtoull(sample.c_str(), nullptr, 10)};
  const std::size_t each = std::strtoull(every.c_str(), nullptr, 10);
  if (each == 0 || share.sample == 0) {
    std::fprintf(stderr, "test_kernels: --every and --sample take a number from 1 on\n");
    return 1;
  }
  doctest::Context context(static_cast<int>(rest.size()), rest.data());
  std::optional<sparsekiln::test::Suite> suite;
  if (!only_asks(rest)) {
    try {
      suite.emplace(target, each);
      if (!claims.empty()) {
        run_share(*suite, share, all_cases());
        return 0;
      }
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
