#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsekiln::test {

/// A way to break a kernel. Each names what a programmer gets wrong.
enum class Fault : std::uint8_t {
  barrier_removed,
  wait_count_off_by_one,
  wait_removed,
  commit_removed,
  order_removed,
  store_of_counter_removed,
  copy_address_off,    ///< one row further in shared memory
  load_address_off,    ///< of an operand in shared memory
  global_address_off,  ///< of an asynchronous copy or a load
  store_address_off,   ///< of the result
  swizzle_changed,
  edge_guard_dropped,   ///< a copy reads all of its bytes, whether their features exist or not
  block_scale_ignored,  ///< it is 1
  scale_dropped,        ///< what is multiplied by one number stays as it is
  zero_fill_dropped,    ///< a copy reads all of its bytes, whether the row exists or not
  store_guard_dropped,  ///< what lies beyond the batch is stored, too
  fragment_swapped,     ///< two registers of a matrix load or of an mma change places
  accumulator_swapped,
  rounding_dropped,       ///< operands go to the tensor core as they are
  multiply_dropped,       ///< an mma, or a fused multiply-add
  transposition_dropped,  ///< a matrix load, or a wgmma, takes rows for columns
  exchange_dropped,       ///< a lane keeps its own sums where those of its neighbour belong
  grid_wait_removed,      ///< no launch before this one need have ended
  grid_trigger_early,     ///< the next launch may begin at once, and this one never waits
  product_fence_removed,  ///< registers of a wgmma are not ordered after what wrote them
  product_wait_off_by_one,
  product_commit_removed,
  expected_bytes_off,  ///< a barrier expects other bytes than are copied
  phase_changed,       ///< a wait for a barrier's phase is always for an even one
  arrival_removed,     ///< a thread that has read a stage does not say so
  arrivals_off,        ///< a barrier is made for two arrivals
  box_off,             ///< the first and the last coordinate of a copy change places
  multicast_dropped,   ///< only the CTA that copies gets the box
  registers_kept,      ///< a warpgroup does not give registers back
  phase_not_awaited,   ///< a stage is used, or filled again, at once
  product_wait_removed,
  product_dropped,     ///< a wgmma
  cluster_left_early,  ///< a CTA does not wait for its cluster
};
[[nodiscard]] std::string_view name(Fault fault);

/// One broken kernel.
struct Mutation {
  Fault fault;
  int line = 0;        ///< of the PTX text
  std::string before;  ///< the instruction as it was
  std::string after;   ///< empty: removed
  std::string ptx;     ///< the whole text
};

/// Every place where `fault` can be made in a kernel. The last barrier is left out: it only separates a batch
/// tile from the next one of the same CTA, and a test has so few tiles that each has a CTA of its own. Only
/// the last of the guarded stores is taken: the first rows of a tile always exist. Only the second half of
/// the copies with an edge is taken, the main loop's: a worker's first chunks need not be of the last column.
/// Where there are two rings, the second wait for an mbarrier is left out, that for a place of a block: there
/// are as many for each tile of x as are read with it, so that the wait for the place of the tile, which
/// comes first, covers it. A wait that stands twice is left out twice.
[[nodiscard]] std::vector<Mutation> mutations(std::string_view ptx, Fault fault);

/// The same in one of the kernels of a launch, one that has no loop over batch tiles: all of its barriers.
[[nodiscard]] std::vector<Mutation> mutations_of_kernel(std::string_view ptx, std::string_view kernel,
                                                        Fault fault);

}  // namespace sparsekiln::test
