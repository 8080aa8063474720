#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "compiler/cpu/sddmm_geometry.h"
#include "compiler/cpu/sddmm_panels.h"
#include "compiler/cpu/vector_ir.h"

namespace sparsekiln::cpu {

/// The pass that computes SDDMM, the gradient of the weight: the runs of a worker, in order.
///
/// Every element of dw is one chain of float32 multiply-adds from 0, ascending in pair and batch row, so it
/// does not depend on how blocks are shared out, or for a batch of one its product (for bf16 with
/// the chain's sign of 0); then scaled, and rounded once to dw's type. Lanes are x's features, dy is
/// broadcast. Sums stay in registers while a register tile goes over a chunk of the batch, and on the stack
/// between chunks.
class SddmmPass {
 public:
  SddmmPass(VectorIr& v, const SddmmGeometry& geometry, LayoutIr& layout);
  void emit(std::string_view name);
  /// A pass after it, where block scales are shared by taps: adds what that one has in the workspace for each
  /// block of dw, in ascending order of a block scale's blocks.
  void emit_block_scales_of_taps(std::string_view name);

 private:
  using Value = llvm::Value;
  using Values = VectorIr::Values;

  struct Run {
    Value* number = nullptr;
    Value* row = nullptr;
    Value* first = nullptr;  ///< number of its first block
    std::int32_t blocks = 1;
    Value* dy_panel = nullptr;  ///< which of those of a block
    Value* x_panel = nullptr;   ///< which of x's
  };
  /// Batch rows of one pair, whose panels are in L1 while register tiles go over them.
  struct Chunk {
    Value* pair = nullptr;
    Value* begin = nullptr;       ///< its first batch row
    Value* count = nullptr;       ///< its batch rows; of a convolution its lines
    Value* first_line = nullptr;  ///< of its image; null: a linear layer
    Value* first = nullptr;       ///< whether no sums were made before
    Value* last = nullptr;        ///< whether no products come after
    Value* dy = nullptr;          ///< its panels
    Values x;                     ///< of each block of the run
    Value* next_dy = nullptr;     ///< what comes after, to be prefetched; null: made when its turn comes
    Values next_x;
  };
  /// A register tile of the panels of a run.
  struct Tile {
    Value* number = nullptr;        ///< among the tiles of the run
    Value* output = nullptr;        ///< its first one within the panel
    std::int32_t outputs = 0;       ///< how many
    std::int32_t vectors = 0;       ///< of x
    Value* feature = nullptr;       ///< its first one within the panel, of a run of one block
    std::int32_t first_vector = 0;  ///< of all blocks' panels, of a run of several
    Value* streams = nullptr;       ///< whether its stores go past the caches
  };
  /// Exact products: what one iteration computes for `outputs` outputs.
  struct WordTile {
    std::int32_t words = 0;    ///< of a vector, of two floats' lanes
    std::int32_t rows = 1;     ///< of a block in a vector
    std::int32_t vectors = 0;  ///< of x
    std::int32_t outputs = 0;
    bool lifts_x = false;  ///< x is lifted, else dy
    /// The factors of dy, for `rows` outputs.
    [[nodiscard]] std::int64_t multiplier_bytes() const {
      return std::int64_t{4} * (lifts_x ? 1 : 2) * (rows == 1 ? 1 : words / 2);
    }
  };
  /// One of two factors is held as (2^16 + 1) times and as -2^16 times itself, the other as itself twice.
  struct Lifted {
    Value* lift = nullptr;
    Value* lower = nullptr;
  };
  /// A vector of floats from every second word of x.
  struct Words {
    Lifted even;
    Lifted odd;
  };

  void run(Value* number);
  void bias_of_run(Value* number);
  void run_of(std::int32_t blocks, Value* number);
  void sum_chunks(const Run& run, Value* batch_rows);
  Chunk locate(const Run& run, Value* number, Value* chunks, Value* total, Value* batch_rows);
  void for_each_tile(std::int32_t blocks, const std::function<void(const Tile&)>& body);
  void compute(const Run& run, const Chunk& chunk, const Tile& tile);
  void locate_next(const Run& run, Chunk& chunk);
  void locate_lines(const Run& run, Value* number, Value* images, Chunk& chunk);
  Values multiply(const Chunk& chunk, const Tile& tile, std::int32_t blocks, Values sums);
  Values multiply_lines(const Chunk& chunk, const Tile& tile, std::int32_t blocks, Values sums);
  /// Lines of an image, and chunks of them.
  [[nodiscard]] Value* image_lines() const;
  [[nodiscard]] Value* image_chunks() const;
  void prefetch_share(const PanelSide& side, Value* panel, Value* turn, const Tile& tile, std::int32_t tiles);
  void multiply_batch_row(const Values& dy_and_x, std::int64_t batch_row, const Tile& tile, Values& sums);
  // sddmm_outer_product.cpp: a batch of one.
  void outer_products();
  void outer_products_as_known();
  void for_each_stretch(bool exact);
  Value* gather_dy(Value* row);
  Value* x_panel_of(const Run& run);
  void outer_product(const Run& run, Value* dy);
  Value* is_moderate(PanelSource& source);
  /// Whether a number of the layout is not 0; false where the geometry has no use for it.
  [[nodiscard]] Value* holds(LayoutNumber number, bool of_use);
  void exact_products(const Run& run);
  Value* zero_added();
  [[nodiscard]] WordTile word_tile() const;
  Lifted lifted(Value* value);
  void store_multipliers(Value* row, const WordTile& shape);
  Lifted load_multiplier(Value* from, const WordTile& shape);
  Words split_words(Value* from, const WordTile& shape);
  /// A vector of words of dw.
  Value* rounded_products(const Words& x, const Lifted& dy);
  // sddmm_epilogue.cpp: what is done to the accumulators, and the other gradients.
  void locate_scale();
  void locate_ends();
  /// Batch rows that the run's sums need: none where all of its block scales are 0.
  Value* needed_batch_rows(const Run& run);
  void sum_bias_of_columns();
  void sum_bias(Value* block);
  /// alpha · sum + beta · the float32 at `address`.
  Value* scaled(Value* sum, Value* address);
  void store_bias(Value* block, Value* panel);
  Value* element_of(const Run& run, const Tile& tile);
  [[nodiscard]] std::int64_t vector_offset(const Tile& tile, std::int32_t output, std::int32_t vector) const;
  [[nodiscard]] Value* within(const Run& run, const Tile& tile, std::int32_t output, std::int32_t vector);
  [[nodiscard]] Value* cut(const Run& run, const Tile& tile, std::size_t number, Value* vector);
  void add_to_block_scale_gradients(const Run& run, const Tile& tile, const Values& sums);
  void clear_block_scale_sums(std::int32_t blocks);
  void store_block_scale_gradients(const Run& run);
  Value* block_scale_of(const Run& run, std::int32_t block);
  Value* block_number(const Run& run, std::int32_t block) { return v_.plus(run.first, v_.constant(block)); }
  void prefetch_tile(const Run& run, const Tile& tile);
  void store_tile(const Run& run, const Tile& tile, Values sums);
  /// Stores values[i] at addresses[i]; `streams`: past the caches, as of a Tile.
  void store_vectors(const Values& values, const Values& addresses, Value* streams);
  void store_vector(Value* value, Value* address, bool streams);
  Value* sums_address(std::int32_t blocks, const Tile& tile, std::int32_t output, std::int32_t vector);

  [[nodiscard]] Value* stack(std::int64_t bytes, const char* name);
  /// Which block of a run a tile's vector belongs to.
  [[nodiscard]] std::int32_t block_of(const Tile& tile, std::int32_t vector) const {
    return (tile.first_vector + vector) * g_.lanes / g_.x.width;
  }
  /// Its first feature within that block's panel, besides Tile::feature.
  [[nodiscard]] std::int64_t feature_of(const Tile& tile, std::int32_t vector) const {
    return (tile.first_vector + vector) * g_.lanes % g_.x.width;
  }

  VectorIr& v_;
  llvm::IRBuilder<>& ir_;
  const SddmmGeometry& g_;
  LayoutIr& layout_;
  SddmmTables tables_;
  Value* streams_ = nullptr;           ///< of sums
  Value* streams_products_ = nullptr;  ///< for the outer product of a batch of one
  Value* many_products_ = nullptr;
  Value* dw_ = nullptr;
  Value* n_ = nullptr;
  Value* pairs_ = nullptr;
  Value* alpha_ = nullptr;     ///< a vector; null: 1
  Value* beta_ = nullptr;      ///< a vector; null: 0
  Value* adds_old_ = nullptr;  ///< whether beta is not 0
  Value* sums_ = nullptr;      ///< of a run's panels, [output][run_width]
  Value* w_ = nullptr;
  Value* block_scales_ = nullptr;
  Value* dbias_ = nullptr;
  Value* dblock_scales_ = nullptr;     ///< or the sums of each block, in the workspace
  Value* bias_sums_ = nullptr;         ///< of a panel of dy
  Value* own_bias_ = nullptr;          ///< a panel of a chunk of dy; null: it is packed as the bias needs it
  Value* block_scale_sums_ = nullptr;  ///< of each block of a run, a vector
  Value* own_dy_ = nullptr;            ///< panels of a chunk, where nothing is packed
  Value* own_x_ = nullptr;             ///< panels of a chunk of each block, [block]
  Value* multipliers_ = nullptr;       ///< a block row's dy, of exact products
  std::optional<PanelSource> x_;
  std::optional<PanelSource> dy_;
  std::optional<PanelSource> bias_;
};

}  // namespace sparsekiln::cpu
