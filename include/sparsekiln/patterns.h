#pragma once

#include <cstdint>

#include <sparsekiln/layout.h>

/// Sparsity patterns. Sizes are in blocks. The same arguments give the same layout on every machine: random
/// draws come from a stated generator and stated mappings, never from `std::` distributions. Every function
/// throws `invalid_argument` for sizes or probabilities out of range, naming the argument.
namespace sparsekiln::patterns {

/// round(density · rows · cols) distinct blocks, uniformly.
[[nodiscard]] Layout random(std::int64_t rows, std::int64_t cols, double density, std::uint64_t seed);

/// Like `random`, but row populations differ by at most one, and column populations by at most one. Where
/// `diagonal`, the diagonal of a square grid is among them, and the other blocks are balanced as well; the
/// density must give at least one block a row. Made with trades between rows (Strona et al. 2014, Curveball).
[[nodiscard]] Layout balanced_random(std::int64_t rows, std::int64_t cols, double density, std::uint64_t seed,
                                     bool diagonal = false);

/// `groups` dense rectangles on the diagonal, of sizes that differ by at most one.
[[nodiscard]] Layout block_diagonal(std::int64_t rows, std::int64_t cols, std::int64_t groups);

/// The blocks that the (scaled) diagonal crosses, and `half_width` blocks to each side of them in their row.
[[nodiscard]] Layout banded(std::int64_t rows, std::int64_t cols, std::int64_t half_width);

/// Watts–Strogatz small world (Watts & Strogatz 1998; used for weights by Gray, Radford & Kingma 2017, §3): a
/// ring lattice of the given density around the scaled diagonal, of which each block is rewired within its
/// row with probability `rewire` to a column not yet taken. It has round(density · rows · cols) blocks; row
/// populations differ by at most one, whatever `rewire` is. At 0 each row is one run of columns that wraps
/// around. Where `diagonal`, the blocks on the diagonal of a square grid are not rewired, so that each unit
/// keeps its own input; the density must give at least one block a row.
[[nodiscard]] Layout watts_strogatz(std::int64_t rows, std::int64_t cols, double density, double rewire,
                                    std::uint64_t seed, bool diagonal = false);

/// Like `watts_strogatz`, but column populations differ by at most one, too, so that every input is used as
/// often as any other. The same lattice, of which each block is chosen with probability `rewire`; the chosen
/// blocks of different rows exchange their columns at random, which keeps all populations (rewiring that
/// preserves degrees: Maslov & Sneppen 2002; here with the trades of `balanced_random`). Some of them end
/// where they were, and a single one stays. In a grid that is not square, the lattice may have columns that
/// differ by more than one; then as few blocks as possible are moved within their rows before.
[[nodiscard]] Layout balanced_watts_strogatz(std::int64_t rows, std::int64_t cols, double density,
                                             double rewire, std::uint64_t seed, bool diagonal = false);

/// Barabási–Albert preferential attachment over `size` nodes with `edges` edges a new node (Gray, Radford &
/// Kingma 2017, §3), as a symmetric size × size grid; the diagonal is set where `diagonal`. The first `edges`
/// nodes start without edges and the next one is joined to all of them, so there are 2 · edges · (size −
/// edges) blocks off the diagonal. 0 ≤ edges < size.
///
/// The first nodes may be left with one edge. `extra_edges` further edges go to the nodes that have few, as
/// in the masks of the LSTM of github.com/openai/blocksparse: one after the other, each joins a node with the
/// fewest edges, drawn among equals, to one of the nodes that it is not yet joined to, drawn uniformly. Each
/// is two blocks. With edges² extra edges every node has at least `edges`, and there are as many blocks off
/// the diagonal as in a ring lattice of 2 · edges neighbors: 2 · edges · size. At most as many as there are
/// pairs of nodes not joined.
[[nodiscard]] Layout barabasi_albert(std::int64_t size, std::int64_t edges, bool diagonal, std::uint64_t seed,
                                     std::int64_t extra_edges = 0);

/// Butterfly: block (i, j) for j = i and for j = i with one of log2(size) bits flipped. `size` is a power of
/// two.
[[nodiscard]] Layout butterfly(std::int64_t size);

/// Attention: lower triangle, diagonal included.
[[nodiscard]] Layout causal(std::int64_t size);

/// Sparse Transformer, strided form (Child et al. 2019, §4.3): the previous `stride` blocks and every block
/// at a multiple of `stride` before, causal.
[[nodiscard]] Layout strided(std::int64_t size, std::int64_t stride);

/// Longformer (Beltagy et al. 2020): a window of `window` blocks to each side, and `global` first blocks that
/// attend everywhere and are attended from everywhere.
[[nodiscard]] Layout longformer(std::int64_t size, std::int64_t window, std::int64_t global);

/// BigBird (Zaheer et al. 2020): Longformer's pattern and `random` further blocks in each row, or as many as
/// are free.
[[nodiscard]] Layout bigbird(std::int64_t size, std::int64_t window, std::int64_t global, std::int64_t random,
                             std::uint64_t seed);

}  // namespace sparsekiln::patterns
