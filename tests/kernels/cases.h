#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

#include "tests/kernels/layouts.h"
#include "tests/kernels/pairwise.h"
#include "tests/kernels/suite.h"

namespace sparsekiln::test {

/// The inputs of a case's second launch; the first has small integers.
enum class Beside : std::uint8_t {
  nothing,  ///< there is none
  random,
  planted,  ///< small integers with Inf and NaN
};

/// One kernel to compile and the way in which it is run.
struct Case {
  const NamedLayout* layout = nullptr;
  Options options;
  bool wide = false;  ///< rows of x and y lie further apart than they are long
  Beside beside = Beside::nothing;

  /// Everything needed to make it again.
  [[nodiscard]] std::string to_string() const;
};

/// The cases of this run: a pairwise covering array for each family of kernels that the device has, over
/// layout, both sides of the block, batch, types and every number of the config; on the cpu also over the
/// architectures that the host runs, on CUDA always for the device's own. Pairs of what is the same for all
/// families (layout, batch, epilogue …) are in one of the arrays, all others in each. With
/// SPARSEKILN_TEST_FULL=1: every problem (layout × block × batch × types), the rest drawn for each. Of
/// either, what Suite::every leaves.
[[nodiscard]] const std::vector<Case>& all_cases();

/// The covering arrays of this device's families of kernels.
struct CaseArrays {
  std::vector<Family> families;
  std::vector<std::size_t> shared;  ///< axes
  std::vector<CoveringArray> arrays;
};
[[nodiscard]] const CaseArrays& case_arrays();

/// Compiles a case, runs it on small integers, on random numbers and on integers with planted Inf and NaN (on
/// the emulator on small integers and what is beside them), and judges every element. Empty where all is
/// well, else what failed.
[[nodiscard]] std::string run(const Case& test);

}  // namespace sparsekiln::test
