#pragma once

#include <vector>

#include <sparsekiln/compile.h>

#include "runtime/cuda/emulator.h"

namespace sparsekiln::test {

/// One launch of the kernel that a layer has by default, and what the emulator counted of it.
struct DefaultLaunch {
  Problem problem;
  Kernel kernel;
  Config config;  ///< with tables in constant memory, which are not counted
  std::vector<cuda::CountedLine> lines;

  [[nodiscard]] const Target& target() const { return kernel.binary().target; }
  [[nodiscard]] const Resources& resources() const { return kernel.binary().entries.front().resources; }
  /// Whether a line is what main loops read of shared memory, or what those of tensor cores copy there.
  [[nodiscard]] static bool feeds(bool simt, const cuda::CountedLine& line);
};

/// Compiles a layer of a fixed batch for `options.target`, an emulated one, launches it once and checks what
/// it computed. `config` of the result is that of `options` where there is one.
[[nodiscard]] DefaultLaunch launch_once(const Layout& layout, Options options);

/// The same with the default config.
[[nodiscard]] DefaultLaunch launch_default(const Layout& layout, Options options);

}  // namespace sparsekiln::test
