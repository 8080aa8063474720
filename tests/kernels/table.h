#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

namespace sparsekiln::test {

class Claims;

/// One kernel of a test case that has many.
struct Part {
  std::string what;  ///< everything needed to make it again
  Layout layout;
  Options options;
  std::function<std::string()>
      run;  ///< compiles, launches and judges; empty where all is well, else what is wrong
};

/// Runs the parts of the test case that doctest is in, and reports each that fails. All are compiled ahead,
/// on all cores: what cannot be compiled fails again where it is run. Where processes share the suite
/// (TableShare), this one does what it can claim. Returns how many it ran.
std::size_t run_table(const std::vector<Part>& parts);

/// How `run_table` works in one of several processes that share the suite: all go over the same tables, first
/// to compile and then to run.
struct TableShare {
  Claims* claims = nullptr;
  bool compiles = false;   ///< only that, into the store
  std::size_t sample = 1;  ///< of the parts of a table, only each `sample`th
  std::size_t passes = 1;  ///< the parts are taken in so many passes, each a sample of the whole
  std::size_t pass = 0;    ///< the one to do
};

/// From now on run_table is this process's share.
void set_table_share(const TableShare& share);

/// Whether a kernel has broken the device's context: then everything after it fails in this process.
[[nodiscard]] bool context_is_lost();

/// Exit status of a process that shares the suite and has ended so.
constexpr int kContextLost = 86;

}  // namespace sparsekiln::test
