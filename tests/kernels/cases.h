#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

#include "tests/kernels/layouts.h"
#include "tests/kernels/pairwise.h"
#include "tests/kernels/spaces.h"
#include "tests/kernels/suite.h"

namespace sparsekiln::test {

/// One kernel to compile, and how it is run.
struct Case {
  const NamedLayout* layout = nullptr;
  Options options;
  bool wide = false;  ///< whether rows of x and y are further apart than they are long
  Beside beside = Beside::nothing;

  /// Everything that is needed to make it again.
  [[nodiscard]] std::string to_string() const;
};

/// The cases of this run: a pairwise covering array for each kernel family of the device, over layout, both
/// sides of the block, batch, types and every number of the config; on the cpu also over the architectures
/// that the host runs, on CUDA always for the device's own. Pairs of values that are the same for all
/// families (layout, batch, epilogue …) are in one of the arrays, all others in each. With
/// SPARSEKILN_TEST_FULL=1: every problem (layout × block × batch × types), with the rest drawn for each.
/// Suite::every selects a part of either list.
[[nodiscard]] const std::vector<Case>& all_cases();

/// The covering arrays of this device's kernel families.
struct CaseArrays {
  std::vector<Family> families;
  std::vector<std::size_t> shared;  ///< axes
  std::vector<CoveringArray> arrays;
};
[[nodiscard]] const CaseArrays& case_arrays();

/// Compiles a case, runs it on small integers, on random numbers and on integers with planted Inf and NaN (on
/// the emulator on small integers and one of the others), and checks every element. Empty if all are right,
/// otherwise what failed.
[[nodiscard]] std::string run(const Case& test);

}  // namespace sparsekiln::test
