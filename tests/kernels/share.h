#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/kernels/suite.h"

namespace sparsekiln::test {

/// What one of several processes that share the suite is told.
struct ShareOptions {
  std::filesystem::path claims;  ///< their file (claims.h)
  std::filesystem::path
      store;         ///< of the kernels that tables compile ahead; other test cases get an empty one each
  double until = 0;  ///< seconds since 1970: nothing is begun after it
  std::string only;  ///< test cases whose names have these words; empty: all
  std::size_t sample = 1;  ///< of the parts of each table, and of the other test cases, each `sample`th
};

/// A test case: its name, and whether it is a table (its doctest suite is "tables").
struct SharedCase {
  std::string name;
  bool table = false;
};

/// Does this process's share of `cases`: first a quarter of the parts of every table, then the test cases
/// that are none, then the other parts. A quarter is compiled as a whole before it is run. A process whose
/// context is lost ends with kContextLost; so do all with the one that started them.
void run_share(Suite& suite, const ShareOptions& options, std::vector<SharedCase> cases);

}  // namespace sparsekiln::test
