#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

namespace sparsekiln::test {

class Claims;

/// One kernel of a test case with many.
struct Part {
  std::string what;  ///< everything that is needed to make it again
  Layout layout;
  Options options;
  std::function<std::string()>
      run;  ///< compiles, launches and checks; empty if all is right, otherwise what is wrong
};

/// Runs the parts of doctest's current test case, and reports each that fails. All are compiled ahead, on all
/// cores: what cannot be compiled fails again when it is run. If processes share the suite (TableShare), this
/// one runs what it can claim. Returns how many it ran.
std::size_t run_table(const std::vector<Part>& parts);

/// How `run_table` works in one of several processes that share the suite: all go through the same tables,
/// first to compile and then to run.
struct TableShare {
  Claims* claims = nullptr;
  bool compiles = false;   ///< only compiles, into the store
  std::size_t sample = 1;  ///< only every `sample`th of the parts of a table
  std::size_t passes = 1;  ///< the parts are run in so many passes, each of which is a sample of the whole
  std::size_t pass = 0;    ///< the pass to run
};

/// From now on, run_table does this process's share.
void set_table_share(const TableShare& share);

/// Whether a kernel has broken the device's context: then everything after it fails in this process.
[[nodiscard]] bool context_is_lost();

/// The exit status of a process that shares the suite and has lost its context.
constexpr int kContextLost = 86;

}  // namespace sparsekiln::test
