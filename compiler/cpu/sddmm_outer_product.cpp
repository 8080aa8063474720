// A batch of one has nothing to accumulate: dw is an outer product, and its cost should be that of stores.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "compiler/cpu/sddmm_pass.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::int32_t kStoresTogether = 16;
/// The most vectors of 16-bit words of x, each of which makes two vectors of floats.
constexpr std::int32_t kMostWordVectors = 4;

/// What exact products take: 0, or a magnitude from the first of these to below the second, as the bits of
/// bf16. Products are then 0, or from 2^-126, where float32 has all of its digits, to below 2^110, which
/// leaves room for a factor of 2^16 + 1.
constexpr std::uint16_t kLeast = (127 - 63) << 7;
constexpr std::uint16_t kTooLarge = (127 + 55) << 7;

constexpr double kLift = 65536;  ///< a word's digits beyond those of bf16

}  // namespace

/// dw of one pair of one batch row, by stretches of a block row, whatever the lengths of runs.
/// Most of its work is stores: what is known of them at its beginning is not tested again for each.
void SddmmPass::outer_products() {
  if (llvm::isa<llvm::Constant>(streams_products_)) return outer_products_as_known();
  Value* const streams = streams_products_;
  v_.branch("past_caches", streams, [&] {
    streams_products_ = ir_.getTrue();
    outer_products_as_known();
  });
  v_.branch("into_caches", ir_.CreateNot(streams), [&] {
    streams_products_ = ir_.getFalse();
    outer_products_as_known();
  });
  streams_products_ = streams;
}

void SddmmPass::outer_products_as_known() {
  if (many_products_ == ir_.getFalse()) return for_each_stretch(false);
  Value* moderate = v_.choose("many", many_products_, ir_.getFalse(),
                              [&] { return ir_.CreateAnd(is_moderate(*x_), is_moderate(*dy_)); });
  v_.branch("exact", moderate, [&] { for_each_stretch(true); });
  v_.branch("inexact", ir_.CreateNot(moderate), [&] { for_each_stretch(false); });
}

void SddmmPass::for_each_stretch(bool exact) {
  Value* zero = v_.constant(0);
  Value* begin = v_.entry(tables_.stretch_begin, v_.worker, "stretches.begin");
  Value* end = v_.entry(tables_.stretch_begin, v_.plus(v_.worker, v_.constant(1)), "stretches.end");
  v_.loop("stretch", begin, end, [&](Value* stretch) {
    const auto field = [&](std::int64_t index, const char* label) {
      return v_.entry(tables_.stretches, v_.plus(v_.times(stretch, kStretchFields), v_.constant(index)),
                      label);
    };
    Run run;
    run.row = field(0, "row");
    Value* dy = exact ? multipliers_ : gather_dy(run.row);
    if (exact) store_multipliers(run.row, word_tile());
    v_.loop("block", field(1, "first"), field(2, "end"), [&](Value* block) {
      run.first = block;
      clear_block_scale_sums(1);
      v_.loop("dy_panel", zero, v_.constant(g_.dy.panels_of_block()), [&](Value* dy_panel) {
        v_.loop("x_panel", zero, v_.constant(g_.x.panels_of_block()), [&](Value* x_panel) {
          run.dy_panel = dy_panel;
          run.x_panel = x_panel;
          return exact ? exact_products(run) : outer_product(run, dy);
        });
      });
      if (g_.block_scale_gradient) store_block_scale_gradients(run);
    });
  });
}

/// One batch row of a block row's panels of dy, concatenated.
SddmmPass::Value* SddmmPass::gather_dy(Value* row) {
  Value* zero = v_.constant(0);
  Value* first = v_.times(row, g_.dy.panels_of_block());
  Value* from = nullptr;
  for (std::int32_t panel = 0; panel < g_.dy.panels_of_block(); ++panel) {
    Value* at =
        dy_->row(zero, v_.plus(first, v_.constant(panel)), zero, v_.at(own_dy_, panel * g_.dy.row_bytes()));
    if (panel == 0) from = at;
  }
  return from;
}

/// The panel of x of a run of one block.
SddmmPass::Value* SddmmPass::x_panel_of(const Run& run) {
  Value* column = v_.entry(tables_.columns, run.first, "column");
  return v_.plus(v_.times(column, g_.x.panels_of_block()), run.x_panel);
}

/// The addend of a product of many: as of exact products, zeros have no sign. The addend of others is -0,
/// which changes no product; null: there are only others.
SddmmPass::Value* SddmmPass::zero_added() {
  if (many_products_ == ir_.getFalse()) return nullptr;
  const auto zero = [&](double value) { return llvm::ConstantFP::get(ir_.getFloatTy(), value); };
  return v_.splat(ir_.CreateSelect(many_products_, zero(0.0), zero(-0.0)), g_.lanes);
}

void SddmmPass::outer_product(const Run& run, Value* dy) {
  Value* zero = v_.constant(0);
  Value* panel = v_.at(dy, v_.times(run.dy_panel, g_.dy.row_bytes()));
  const auto x = x_->row_reader(zero, x_panel_of(run), zero, own_x_);
  Tile tile;
  tile.feature = zero;
  tile.vectors = std::min(8, g_.x.width / g_.lanes);
  tile.outputs = std::min(8, kStoresTogether / tile.vectors);
  Value* none = zero_added();
  tile.streams = streams_products_;
  for (std::int32_t group = 0; group < g_.x.width / (tile.vectors * g_.lanes); ++group) {
    tile.first_vector = group * tile.vectors;
    Values xs;
    for (std::int32_t vector = 0; vector < tile.vectors; ++vector) xs.push_back(x(feature_of(tile, vector)));
    v_.loop("outputs", zero, v_.constant(g_.dy.width / tile.outputs), [&](Value* number) {
      tile.output = v_.times(number, tile.outputs);
      Value* from = v_.settled(v_.at(panel, v_.times(tile.output, 4)));
      Values sums;
      for (std::int32_t output = 0; output < tile.outputs; ++output) {
        Value* word = v_.load(ir_.getFloatTy(), v_.at(from, std::int64_t{4} * output), 4);
        Value* broadcast = v_.splat(word, g_.lanes);
        for (Value* of_x : xs)
          sums.push_back(none == nullptr ? ir_.CreateFMul(of_x, broadcast)
                                         : v_.multiply_add(of_x, broadcast, none));
      }
      store_tile(run, tile, std::move(sums));
    });
  }
}

/// Whether exact products take all of an operand of one batch row.
SddmmPass::Value* SddmmPass::is_moderate(PanelSource& source) {
  const LayoutNumber which = source.side().features();
  Value* features = layout_.number(which);
  const std::int64_t at_least = layout_.known(which).value_or(source.side().block_width);
  const auto lanes = static_cast<std::int32_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::min<std::int64_t>(2 * v_.level.lanes, at_least))));
  Value* zero = v_.constant(0);
  Value* from = source.address(zero, zero, zero);
  const auto all = [&](std::uint16_t word) { return v_.splat(ir_.getInt16(word), lanes); };
  const auto refused = [&](Value* first) {
    const auto align = static_cast<unsigned>(std::min(16, g_.alignment));
    Value* words = v_.load_elements(DType::bf16, v_.at(from, v_.times(first, 2)), lanes, align);
    Value* magnitude = ir_.CreateAnd(words, all(0x7fff));
    // For 0 the difference is the largest of all.
    Value* small = ir_.CreateICmpULT(ir_.CreateSub(magnitude, all(1)), all(kLeast - 1));
    Value* large = ir_.CreateICmpSGE(magnitude, all(kTooLarge));
    return ir_.CreateSExt(ir_.CreateOr(small, large), words->getType());
  };
  // The last vector may have some of the one before again.
  Value* any = refused(ir_.CreateSub(features, v_.constant(lanes)));
  any = v_.loop("words", zero, ir_.CreateSDiv(features, v_.constant(lanes)), {any},
                [&](Value* number, const Values& before) -> Values {
                  return {ir_.CreateOr(before[0], refused(v_.times(number, lanes)))};
                })[0];
  return ir_.CreateICmpEQ(ir_.CreateOrReduce(any), ir_.getInt16(0));
}

/// Products of bf16 have 16 digits, so with D = (2^16 + 1) · dy, which float32 holds, x · D is
/// 2^16 · x · dy + x · dy, and float32 has digits for the first term and for eight of the second: it rounds
/// the second to bf16, to nearest even. Taking the first term away leaves that. (Of Veltkamp's splitting,
/// 1968.) x may be scaled up instead of dy as well.
void SddmmPass::exact_products(const Run& run) {
  const WordTile shape = word_tile();
  const std::int64_t step = shape.multiplier_bytes();
  Value* dy = v_.at(multipliers_, v_.times(run.dy_panel, step * g_.dy.width / shape.rows));
  Value* x = x_->address(v_.constant(0), x_panel_of(run), v_.constant(0));
  for (std::int32_t first = 0; first < g_.x.width; first += shape.vectors * shape.words) {
    std::vector<Words> xs;
    for (std::int32_t vector = 0; vector < shape.vectors; ++vector)
      xs.push_back(split_words(v_.at(x, std::int64_t{2} * (first + vector * shape.words)), shape));
    v_.loop("outputs", v_.constant(0), v_.constant(g_.dy.width / shape.outputs), [&](Value* number) {
      Tile tile;
      tile.output = v_.times(number, shape.outputs);
      tile.feature = v_.constant(first);
      Value* to = v_.settled(v_.at(dw_, v_.times(element_of(run, tile), 2)));
      Value* from = v_.settled(v_.at(dy, v_.times(number, step * shape.outputs / shape.rows)));
      for (std::int32_t output = 0; output < shape.outputs; output += shape.rows) {
        const Lifted factor = load_multiplier(v_.at(from, step * output / shape.rows), shape);
        Values products;
        Values addresses;
        for (std::size_t i = 0; i < xs.size(); ++i) {
          const std::int64_t at =
              std::int64_t{output} * g_.block.in + static_cast<std::int64_t>(i) * shape.words;
          products.push_back(rounded_products(xs[i], factor));
          addresses.push_back(v_.at(to, 2 * at));
        }
        store_vectors(products, addresses, streams_products_);
      }
    });
  }
}

SddmmPass::WordTile SddmmPass::word_tile() const {
  WordTile shape;
  shape.words = 2 * g_.lanes;
  shape.rows = std::max(1, shape.words / g_.x.width);
  shape.vectors = std::min(kMostWordVectors, std::max(1, g_.x.width / shape.words));
  shape.outputs = std::min(g_.dy.width, shape.rows * kStoresTogether / shape.vectors);
  // Four registers for a vector of x, and one load for a row, or two and two.
  shape.lifts_x = shape.vectors <= kMostWordVectors / 2;
  return shape;
}

SddmmPass::Lifted SddmmPass::lifted(Value* value) {
  const auto times = [&](double factor) {
    return ir_.CreateFMul(value, llvm::ConstantFP::get(value->getType(), factor));
  };
  return {times(kLift + 1), times(-kLift)};
}

/// A block row's dy as the tiles load it: a float for each output, or a vector for as many as have a row of
/// one; of a lifted dy two.
void SddmmPass::store_multipliers(Value* row, const WordTile& shape) {
  Value* zero = v_.constant(0);
  const std::int32_t lanes = std::min(v_.level.lanes, g_.dy.width);
  const std::int32_t lanes_of_output = shape.rows == 1 ? 1 : g_.lanes / shape.rows;
  const std::int32_t together = shape.rows == 1 ? lanes : shape.rows;
  const auto dy = dy_->row_reader(zero, v_.times(row, g_.dy.panels_of_block()), zero, own_dy_);
  for (std::int32_t first = 0; first < g_.block.out; first += lanes) {
    Value* value = dy(first);
    const Lifted multipliers = shape.lifts_x ? Lifted{value, value} : lifted(value);
    for (std::int32_t begin = 0; begin < lanes; begin += together) {
      std::vector<int> spread;
      for (std::int32_t output = begin; output < begin + together; output += shape.rows)
        for (std::int32_t which = 0; which < (shape.lifts_x ? 1 : 2); ++which)
          for (std::int32_t lane = 0; lane < shape.rows * lanes_of_output; ++lane)
            spread.push_back(which * lanes + output + lane / lanes_of_output);
      v_.store(ir_.CreateShuffleVector(multipliers.lift, multipliers.lower, spread),
               v_.at(multipliers_, shape.multiplier_bytes() * (first + begin) / shape.rows), 16);
    }
  }
}

SddmmPass::Lifted SddmmPass::load_multiplier(Value* from, const WordTile& shape) {
  const auto load = [&](std::int64_t which) {
    if (shape.rows > 1) return v_.load(v_.floats(g_.lanes), v_.at(from, 4 * g_.lanes * which), 16);
    return v_.splat(v_.load(ir_.getFloatTy(), v_.at(from, 4 * which), 4), g_.lanes);
  };
  Value* first = load(0);
  return {first, shape.lifts_x ? first : load(1)};
}

/// A vector of x's words, once for each row, as floats.
SddmmPass::Words SddmmPass::split_words(Value* from, const WordTile& shape) {
  const std::int32_t words = shape.words / shape.rows;
  const auto align = static_cast<unsigned>(std::min(16, g_.alignment));
  Value* vector = v_.load_elements(DType::bf16, from, words, align);
  std::vector<int> repeated;
  for (std::int32_t word = 0; word < shape.words; ++word) repeated.push_back(word % words);
  if (shape.rows > 1) vector = ir_.CreateShuffleVector(vector, repeated);
  Value* bits = ir_.CreateBitCast(vector, v_.ints(g_.lanes));
  const auto all = [&](std::uint32_t word) { return v_.splat(ir_.getInt32(word), g_.lanes); };
  const auto floats = [&](Value* of_words) -> Lifted {
    Value* value = ir_.CreateBitCast(of_words, v_.floats(g_.lanes));
    return shape.lifts_x ? lifted(value) : Lifted{value, value};
  };
  return {floats(ir_.CreateShl(bits, all(16))), floats(ir_.CreateAnd(bits, all(0xffff0000)))};
}

SddmmPass::Value* SddmmPass::rounded_products(const Words& x, const Lifted& dy) {
  const auto rounded = [&](const Lifted& of_x) {
    Value* product = v_.multiply_add(of_x.lower, dy.lower, ir_.CreateFMul(of_x.lift, dy.lift));
    return ir_.CreateBitCast(product, v_.ints(g_.lanes));
  };
  // Below bf16's digits all are zero.
  Value* even = ir_.CreateLShr(rounded(x.even), v_.splat(ir_.getInt32(16), g_.lanes));
  return ir_.CreateOr(even, rounded(x.odd));
}

}  // namespace sparsekiln::cpu
