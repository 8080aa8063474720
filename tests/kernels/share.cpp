#include "tests/kernels/share.h"

#include <doctest/doctest.h>
#include <sys/prctl.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>

#include "tests/kernels/claims.h"
#include "tests/kernels/table.h"

namespace sparsekiln::test {
namespace {

constexpr std::size_t kPasses = 4;

/// doctest's filters use commas as separators.
std::string filter_of(const std::string& name) {
  std::string filter = "--test-case=";
  for (const char c : name) {
    if (c == ',' || c == '\\') filter += '\\';
    filter += c;
  }
  return filter;
}

/// What doctest printed if the case failed; empty if it passed.
std::string failure_of(const std::string& name) {
  const std::string filter = filter_of(name);
  const std::array<const char*, 3> arguments{"test_kernels", filter.c_str(), "--no-colors"};
  doctest::Context context(static_cast<int>(arguments.size()), arguments.data());
  std::ostringstream said;
  context.setCout(&said);
  return context.run() == 0 ? "" : said.str();
}

}  // namespace

void run_share(Suite& suite, const ShareOptions& options, std::vector<SharedCase> cases) {
  std::erase_if(cases,
                [&](const SharedCase& test) { return test.name.find(options.only) == test.name.npos; });
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto until =
      std::chrono::system_clock::time_point(std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::duration<double>(options.until)));
  Claims claims(options.claims, until);
  std::erase_if(cases, [&, number = std::size_t{0}](const SharedCase& test) mutable {
    return !test.table && number++ % options.sample != 0;
  });
  for (const SharedCase& test : cases) claims.plan(test.name, test.table ? 0 : 1);
  for (std::size_t pass = 0; pass < kPasses; ++pass) {
    suite.keep_store(options.store);
    for (const bool compiles : {true, false}) {
      set_table_share({.claims = &claims,
                       .compiles = compiles,
                       .sample = options.sample,
                       .passes = kPasses,
                       .pass = pass});
      for (const SharedCase& test : cases)
        if (test.table) (void)failure_of(test.name);  // the claims contain the result
    }
    if (pass > 0) continue;
    for (const SharedCase& test : cases) {
      if (test.table || !claims.claim(test.name, "")) continue;
      suite.take_empty_store();
      const std::string failure = failure_of(test.name);
      claims.end(test.name, failure);
      if (!failure.empty() && context_is_lost()) std::_Exit(kContextLost);
    }
  }
}

}  // namespace sparsekiln::test
