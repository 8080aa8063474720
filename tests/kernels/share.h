#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/kernels/suite.h"

namespace sparsekiln::test {

/// The task of one of several processes that share the suite.
struct ShareOptions {
  std::filesystem::path claims;  ///< their file (claims.h)
  std::filesystem::path
      store;         ///< of the kernels that tables compile ahead; other test cases get an empty one each
  double until = 0;  ///< seconds since 1970: nothing is started after it
  std::string only;  ///< test cases whose names contain these words; empty: all
  std::size_t sample = 1;  ///< every `sample`th of the parts of each table, and of the other test cases
};

/// A test case: its name, and whether it is a table (its doctest suite is "tables").
struct SharedCase {
  std::string name;
  bool table = false;
};

/// Does this process's share of `cases`: first a quarter of the parts of every table, then the test cases
/// without tables, then the other parts. A quarter is compiled as a whole before it is run. A process whose
/// context is lost ends with kContextLost; all processes end with the one that started them.
void run_share(Suite& suite, const ShareOptions& options, std::vector<SharedCase> cases);

}  // namespace sparsekiln::test
