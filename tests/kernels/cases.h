#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

#include "tests/kernels/layouts.h"
#include "tests/kernels/suite.h"

namespace sparsekiln::test {

/// One kernel to compile and the way in which it is run.
struct Case {
  const NamedLayout* layout = nullptr;
  Options options;
  bool wide = false;       ///< rows of x and y lie further apart than they are long
  std::size_t number = 0;  ///< in the case list

  /// Everything needed to make it again.
  [[nodiscard]] std::string to_string() const;
};

/// The cases of this run: for each family of kernels that the device has, a pairwise covering array over
/// layout, both sides of the block, batch, types and every number of the config; on the cpu also over the
/// architectures that the host runs, on CUDA always for the device's own. With SPARSEKILN_TEST_FULL=1: every
/// problem (layout × block × batch × types), the rest drawn for each. Of either, what Suite::every leaves.
[[nodiscard]] const std::vector<Case>& all_cases();

/// Compiles a case, runs it on small integers, on random numbers and on integers with planted Inf and NaN (on
/// the emulator on one of these two, in turn), and judges every element. Empty where all is well, else what
/// failed.
[[nodiscard]] std::string run(const Case& test);

}  // namespace sparsekiln::test
