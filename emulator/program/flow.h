#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "emulator/machine/warp.h"
#include "emulator/program/draft.h"
#include "emulator/program/program.h"

namespace sparsekiln::emulator {

/// Instructions [first, last) that run one after the other.
struct BasicBlock {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  std::vector<std::uint32_t> successors;  ///< blocks
  bool ends_lanes = false;                ///< all lanes, or those of a guard
};

/// Blocks in the order of the drafts, which end with an unguarded Flow::end. A guarded end is the last of its
/// block and no edge: the lanes that go on are what counts for the others.
[[nodiscard]] std::vector<BasicBlock> basic_blocks(std::span<const Draft> drafts);

inline constexpr std::uint32_t kNoBlock = 0xffffffffu;

/// For each block the first one that every path from it to the function's main end meets, itself left aside;
/// kNoBlock where there is none. (Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm, on the
/// reversed graph.)
///
/// The main end is that to which most blocks lead. Ways that lead to other ends alone count for nothing:
/// lanes on them end, and the others need not wait for them any longer. Among blocks that do not lead to the
/// main end, the same holds for the end to which most of them lead, and so on; last for loops that only a
/// guarded Flow::end leaves.
[[nodiscard]] std::vector<std::uint32_t> immediate_post_dominators(std::span<const BasicBlock> blocks);

/// Handlers of control flow. Lanes that part at a branch run one after the other, those that fall through
/// first, until they meet at the branch's join (PTX ISA 3.1: SIMT; where they meet is left open there).

/// `bra`: immediate is the target, detail the pc of the join, or kNoJoin.
void branch(Warp& warp, const Instruction& instruction, Mask taken);
/// `bra.uni`: as `branch`, but lanes that part are a Fault.
void branch_uniform(Warp& warp, const Instruction& instruction, Mask taken);
/// Stands where lanes of a branch meet; immediate is its own pc.
void join(Warp& warp, const Instruction& instruction, Mask arrived);
/// `ret` and `exit` of an entry.
void end_lanes(Warp& warp, const Instruction& instruction, Mask ending);
/// `trap`.
void trap(Warp& warp, const Instruction& instruction, Mask mask);

}  // namespace sparsekiln::emulator
