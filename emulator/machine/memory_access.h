#pragma once

#include <cstddef>
#include <cstdint>

namespace sparsekiln::emulator {

struct Warp;
struct Instruction;

/// `shared` is the block's own, `shared_cluster` that of a block of its cluster.
enum class AccessSpace : std::uint8_t { global, shared, local, constant, generic, shared_cluster };
enum class AccessKind : std::uint8_t { read, write, atomic };

/// Which threads an operation is visible to, or ordered for (PTX ISA 8.5).
enum class Scope : std::uint8_t { block, cluster, device, system };

/// One access of a warp: each lane of `mask` touches `bytes` at its address. `strong`: relaxed or stronger,
/// or volatile; no race with other strong accesses within `scope`.
struct Access {
  AccessSpace space = AccessSpace::global;
  AccessKind kind = AccessKind::read;
  int bytes = 4;  ///< of a lane, vectors in full: 1 to 16
  bool strong = false;
  Scope scope = Scope::device;  ///< of a strong access
  /// Whether a lane's write leaves `memory`, where it goes, as it is. Null: not known before it is done.
  bool (*keeps)(const Warp& warp, const Instruction& instruction, int lane,
                const std::byte* memory) = nullptr;
};

/// How an atomic or a strong access orders the accesses before and after it (PTX ISA 8.6).
enum class Semantics : std::uint8_t { relaxed, acquire, release, acquire_release };
}  // namespace sparsekiln::emulator
