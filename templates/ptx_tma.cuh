#pragma once

#include "tensor_map.cuh"

// Wrappers of copies by the copy engine of sm_90, TMA (PTX ISA, "Data Movement and Conversion Instructions:
// cp.async.bulk.tensor"). One thread queues the copy of a whole box.

namespace sparsekiln::ptx {

/// True for one thread of a warp, whose threads all call this.
__device__ __forceinline__ bool is_elected() {
  unsigned elected;
  asm volatile(
      "{\n\t.reg .pred elected;\n\telect.sync _|elected, 0xffffffff;\n\tselp.b32 %0, 1, 0, elected;\n\t}"
      : "=r"(elected));
  return elected != 0;
}

/// Fetches a map, which the first copy by it waits for.
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Queues a copy of the box whose first element is `column` of `row`, and whose bytes arrive on `barrier`.
/// Elements outside of the matrix become zeros, and count. With several CTAs, the box and its bytes arrive in
/// all those that have a bit in `ctas`, at the same places.
template <int kCtas>
__device__ __forceinline__ void copy_box(unsigned shared, const TensorMap& map, int column, int row,
                                         unsigned barrier, unsigned ctas = 1) {
  if constexpr (kCtas == 1)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
        "%3}], [%4];" ::"r"(shared),
        "l"(&map), "r"(column), "r"(row), "r"(barrier)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared),
        "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(static_cast<unsigned short>(ctas))
        : "memory");
}

/// The equivalent for a map whose rows come in an order of their own (sparsekiln::TensorMap::interleave):
/// `span` counts the rows that are exchanged with one another.
template <int kCtas>
__device__ __forceinline__ void copy_box_in_order(unsigned shared, const TensorMap& map, int column, int span,
                                                  unsigned barrier, unsigned ctas = 1) {
  if constexpr (kCtas == 1)
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
        "%3, %3, %3, %4}], [%5];" ::"r"(shared),
        "l"(&map), "r"(column), "r"(0), "r"(span), "r"(barrier)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3, %3, %3, %4}], [%5], %6;" ::"r"(shared),
        "l"(&map), "r"(column), "r"(0), "r"(span), "r"(barrier), "h"(static_cast<unsigned short>(ctas))
        : "memory");
}

/// Queues a copy by a map of images: the box's first element is feature `column` of position (d, h, w) of an
/// image.
__device__ __forceinline__ void copy_box_of_image(unsigned shared, const TensorMap& map, int column, int w,
                                                  int h, int d, int image, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
      "%4, %5, %6}], [%7];" ::"r"(shared),
      "l"(&map), "r"(column), "r"(w), "r"(h), "r"(d), "r"(image), "r"(barrier)
      : "memory");
}

}  // namespace sparsekiln::ptx
