#pragma once

#include <cstdint>
#include <string>

#include <sparsekiln/binary.h>
#include <sparsekiln/problem.h>

namespace sparsekiln::test {

/// What became of a kernel.
struct TestLaunch {
  bool caught = false;
  std::string how;  ///< the report, or what the oracle says
};

/// Runs `binary` with another PTX on the emulator, in a process of its own (a kernel that goes wrong breaks
/// its context), on small integers and on random numbers, twice each, under one seed after the other until
/// something is found. Throws where the process could not do so much as run.
[[nodiscard]] TestLaunch try_out(const Binary& binary, const Problem& problem, const std::string& ptx,
                                 const std::string& device, std::uint64_t first_seed, int seeds);

}  // namespace sparsekiln::test
