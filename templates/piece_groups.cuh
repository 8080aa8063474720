#pragma once

#include "wgmma_fragment.cuh"

// What gradients of the weight have in common whose CTAs sum many pieces of blocks at once
// (compiler/block_groups.h).

namespace sparsekiln {

/// What a CTA sums at once.
struct __align__(16) PieceGroup {
  int first;   ///< of its tiles, among those of all groups
  int tiles;   ///< of dy and x
  int of_dy;   ///< of these: they are in front
  int summed;  ///< of these, in front: whose sum over the batch this group computes, for a bias
};
/// Two pieces of a group, or one: a product.
struct PiecePair {
  int tiles;  ///< the tile that both share, 1 << 8 times that of the first piece and 1 << 16 of the second,
              ///< which is not before it; 1 << 24 times 1 where what they share is x
  int first;  ///< where the first element of the first piece is in dw, in rows of a piece; -1: there is none
  int second;
  int taps;  ///< of a convolution, by which the pieces read their tiles: the first's, and 1 << 16 the
             ///< second's
};

/// Two columns of a row for each of two lanes, which are 4 apart, become two rows of a column; or four of
/// four.
__device__ __forceinline__ void transpose_values(int lane, float (&values)[2]) {
  exchange_with<4>(lane, values[0], values[1]);
}
__device__ __forceinline__ void transpose_values(int lane, float (&values)[4]) {
  exchange_with<4>(lane, values[0], values[1]);
  exchange_with<4>(lane, values[2], values[3]);
  exchange_with<8>(lane, values[0], values[2]);
  exchange_with<8>(lane, values[1], values[3]);
}

}  // namespace sparsekiln
