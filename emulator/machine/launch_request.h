#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "emulator/machine/memory.h"
#include "emulator/program/program.h"

namespace sparsekiln::emulator {

/// The checks of a launch. All are on by default; bounds are always checked, so that no kernel can damage the
/// process.
struct Checks {
  bool unwritten = true;  ///< reads of memory that nothing wrote
  bool races = true;
  bool counters = true;  ///< sectors, wavefronts; instructions are counted always
  friend bool operator==(const Checks&, const Checks&) = default;
};

class Footprint;

struct LaunchRequest {
  const Program* program = nullptr;
  GlobalMemory* memory = nullptr;
  std::uint32_t grid[3] = {1, 1, 1};
  std::uint32_t block[3] = {1, 1, 1};
  std::uint32_t cluster[3] = {1, 1, 1};  ///< blocks of a cluster; divides the grid
  std::uint32_t dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;  ///< Program::param_bytes of them
  std::uint64_t seed = 0;             ///< decides every order that the program does not
  std::uint64_t number = 1;           ///< of this launch in the context: each has another
  int host_threads = 0;               ///< 0: as many as the process may use
  Checks checks;
  std::uint32_t multiprocessors = 132;
  /// Blocks of this kernel that the device holds at once: so many may wait for one another.
  std::uint32_t resident_blocks = 132 * 16;
  /// Where what the launch accesses is recorded, if Checks::races; null: nowhere.
  Footprint* footprint = nullptr;
  /// Earlier launches that need not have ended when a thread of this one runs, before it has executed
  /// griddepcontrol.wait and after that. The direct predecessor is the last one of the first list.
  std::vector<const Footprint*> unfinished_before_wait;
  std::vector<const Footprint*> unfinished_after_wait;

  [[nodiscard]] bool overlaps() const { return !unfinished_before_wait.empty(); }
};

}  // namespace sparsekiln::emulator
