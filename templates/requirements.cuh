#pragma once

// What the parts of a product ask of one another, as concepts: a part that lacks something is named where it
// is used, instead of deep within another template.

namespace sparsekiln {

/// A chunk of operands that is multiplied next. Where an item has more tiles than a step has weights, next()
/// is its Step; where gates may skip one, it has skipped() and skip().
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

/// Where an item's outputs are.
template <class T>
concept PlaceOfItem = requires(const T& place, int i) {
  place.row(i);    // the row of B of its i-th block row; negative: there is none
  place.split(i);  // the number of its SplitPart; negative: it is whole
};

}  // namespace sparsekiln
