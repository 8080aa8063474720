#pragma once

// What the parts of a product ask of one another, as concepts: a part that lacks something is named where it
// is used, instead of deep within another template.

namespace sparsekiln {

/// A chunk of operands that is multiplied next. Where an item has more tiles than a step has weights, next()
/// is its Step; where block scales may skip one, it has skipped() and skip().
template <class T>
concept ChunkOfOperands = requires(T& chunk, bool same_input) {
  T::kStepWeights;            // weights whose blocks one step is of
  chunk.acquire(same_input);  // waits until it is there; `same_input`: x is that of the chunk before
  chunk.release();            // it may be overwritten
};

/// The loader of a worker's chunks: from first() on every kStride-th is these threads'.
template <class T>
concept ChunkLoader = requires {
  T::kStride;
  T::kStepWeights;
  T::kBlocks;  // steps of a chunk
  T::first();
};

/// Accumulators of an item as the epilogue takes them: kRows output tiles of kN × kOut values a thread, of
/// which kRun are neighbours in y. The first kHolders threads have values. Where its j-th batch row is,
/// n_of(j) says, or a RowsOfY of its own.
template <class T>
concept FinishedTile = requires(T& tile, int i) {
  T::kRows;
  T::kN;
  T::kOut;
  T::kRun;
  T::kHolders;
  tile.out_of(i);    // the output of value i, in the output tile
  tile.at(i, i, i);  // a value: of tile r, batch row j, output i
};

/// The tile of a main loop: it adds the products of chunks to one of its output tiles.
template <class T>
concept AccumulatingTile = requires(T& tile) {
  typename T::Place;  // of an item: a PlaceOfItem
  tile.clear();
  tile.gathered();  // a FinishedTile
};

/// What OperandRings have of each operand.
template <class T>
concept LayoutOfRings = requires {
  T::kRings;                    // of W
  T::kPlacesX + T::kPlacesW;    // of a ring
  T::kBytesX + T::kBytesW;      // of a place
  T::kReadersX + T::kReadersW;  // arrivals that empty a place
  T::kCtasX + T::kCtasW;        // that share a place
};

/// The sums of a warpgroup to which wgmma adds the products of chunks. The wait for a chunk is repeated where
/// kWaits is 2.
template <class T>
concept ChunkSums = requires(T& sums, int place) {
  T::kWaits;
  sums.point_at(place);  // the next chunk is in this place of the ring
  sums.multiply();       // queues its products as a group
  sums.pin();            // an optimization barrier: nothing reads sums earlier, or writes them later
};

/// What a CTA does with groups of pieces (piece_groups.cuh). It may load() a group, store() its Sums, and
/// store_bias() of sums of dy, too.
template <class T>
concept PieceWork = requires(const T& work) {
  typename T::Ring;
  typename T::Sums;    // ChunkSums of Sums::kPairs pairs of pieces
  T::kOtherRegisters;  // of a thread of the warpgroup that does not multiply
  T::only_sums_dy;     // whether a group has no pairs
  work.chunks();       // of a group
};

/// Where an item's outputs are.
template <class T>
concept PlaceOfItem = requires(const T& place, int i) {
  place.row(i);    // the row of B of its i-th block row; negative: there is none
  place.split(i);  // the number of its SplitPart; negative: it is whole
};

}  // namespace sparsekiln
