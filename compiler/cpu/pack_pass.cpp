#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include <llvm/IR/Intrinsics.h>

#include "compiler/cpu/activation_ir.h"
#include "compiler/cpu/call.h"
#include "compiler/cpu/lattice_ir.h"
#include "compiler/cpu/passes.h"

namespace sparsekiln::cpu {
namespace {

/// Bytes of a batch row that are packed before the next batch rows are read, so that every line of x that
/// is fetched is used up while it is in L1, though rows of x may all fall into the same cache set.
constexpr std::int64_t kStretchBytes = 256;
/// Rows of x that are prefetched of a convolution: they follow one another in memory.
constexpr std::int64_t kRowsAhead = 32;

/// The side of a square. Two lines of a row are read one after the other, so 16 words, a line, are for rows
/// that follow one another: others may all fall into one set of the cache, which holds 8.
std::int32_t side_of(const Level& level, const Geometry& g, const LayoutIr& layout) {
  const auto whole = [&](std::int32_t side) { return g.block_words % side == 0; };
  if (g.correlation && level.lanes == 16 && whole(16)) return 16;
  const bool whole_rows = !layout.has(kPackedWords) && layout.known(LayoutNumber::words).value_or(1) % 8 == 0;
  return whole(8) || whole_rows ? std::min(8, level.lanes) : 4;
}

/// A square of batch rows × words at a time; a block with four words in a row allows no wider one. Where x is
/// feature-major, a vector of batch rows, or of points of a convolution; of a small batch, one batch row
/// after the other.
class PackPass {
 public:
  PackPass(VectorIr& v, const Geometry& g, LayoutIr& layout)
      : v_(v), ir_(v.ir), g_(g), layout_(layout), side_(side_of(v.level, g, layout)) {}

  void emit(std::string_view name);

 private:
  using Value = llvm::Value;
  using Values = VectorIr::Values;

  /// dy's and z's memory, or x's.
  struct Operand {
    Value* base;
    Value* stride_bytes;
    [[nodiscard]] bool there() const { return base != nullptr; }
  };
  /// Elements of x, and of z, before they are packed.
  struct Elements {
    Value* x;
    Value* z;
  };

  /// Rows of x and z, and whether they are there; one that is not may be read, and is packed as zeros.
  struct Rows {
    Values xs;
    Values zs;
    Values present;
  };
  Operand operand(std::size_t base, std::size_t stride, const char* name);
  void add_row(Rows& rows, Value* row, Value* present);
  [[nodiscard]] Rows rows_from(Value* panel_row);
  void pack();
  void for_each_stretch(const std::function<void(Value*, Value*)>& body);
  void pack_batch_rows(Value* word, Value* end);
  void pack_square(const Values& xs, const Values& zs, const Values& present, Value* batch_row, Value* k,
                   bool clipped);
  void pack_features(Value* word, Value* end);
  void pack_points(Value* word, Value* end);
  [[nodiscard]] Value* points_of(Value* k, const std::vector<RowOfPoint>& points);
  [[nodiscard]] Operand of_image(const Operand& operand, Value* image);
  void pack_few(Value* word, Value* end);
  void for_each_square(Value* word, Value* end, const std::function<void(Value*, bool)>& body);
  [[nodiscard]] Value* words_of(Value* row, Value* k, bool clipped);
  [[nodiscard]] Value* batch_rows_of(Value* k, Value* batch_row, std::int32_t count, bool clipped);
  [[nodiscard]] Value* packed(const Elements& elements);
  [[nodiscard]] Value* packed_pairs(const Elements& words);
  [[nodiscard]] Value* packed_half(const Elements& elements);
  template <class Load>
  [[nodiscard]] Elements both(const Load& load) {
    return {load(x_), z_.there() ? load(z_) : nullptr};
  }
  [[nodiscard]] std::int64_t element_bytes() const { return g_.word_bytes / g_.word_elements; }

  VectorIr& v_;
  llvm::IRBuilder<>& ir_;
  const Geometry& g_;
  LayoutIr& layout_;
  std::int32_t side_;
  Operand x_{};
  Operand z_{};
  Value* n_ = nullptr;
  Images images_{};                   ///< of a convolution
  Value* first_batch_row_ = nullptr;  ///< or point
  Value* in_features_ = nullptr;
  Value* panel_ = nullptr;
  Value* ahead_ = nullptr;
};

PackPass::Operand PackPass::operand(std::size_t base, std::size_t stride, const char* name) {
  return {v_.argument(ir_.getPtrTy(), base, name),
          v_.times(v_.argument(ir_.getInt64Ty(), stride, "stride"), element_bytes())};
}

void PackPass::emit(std::string_view name) {
  v_.begin_pass(name);
  x_ = operand(offsetof(Call, x), offsetof(Call, x_stride), "x");
  if (g_.derivative != Activation::none) z_ = operand(offsetof(Call, z), offsetof(Call, z_stride), "z");
  n_ = v_.argument(ir_.getInt64Ty(), offsetof(Call, n), "n");
  if (g_.cuts_in) in_features_ = layout_.number(LayoutNumber::in_features);
  if (g_.correlation) {
    const Strip packed = strip(v_, v_.batch_tile, n_, g_);
    images_ = packed.images;
    first_batch_row_ = packed.first_point;
    if (g_.channels_first) {
      x_ = of_image(x_, images_.first);
      if (z_.there()) z_ = of_image(z_, images_.first);
    }
  } else {
    first_batch_row_ = v_.times(v_.batch_tile, g_.tile_n);
  }
  Value* tile = ir_.CreateUDiv(v_.batch_tile, v_.constant(g_.panel_strips));
  panel_ = locate_workspace(v_, tile, g_, layout_).panel;
  ahead_ = v_.constant(kStretchBytes);
  if (g_.correlation && !g_.channels_first)
    ahead_ = v_.times(x_.stride_bytes, std::int64_t{kRowsAhead} * g_.correlation->in_step[2]);
  if (g_.correlation)
    v_.branch("there", ir_.CreateICmpULT(first_batch_row_, image_points(v_, g_)), [&] { pack(); });
  else
    pack();
  v_.end_pass();
}

void PackPass::pack() {
  for_each_stretch([&](Value* word, Value* end) {
    if (g_.small_batch)
      pack_few(word, end);
    else if (g_.channels_first)
      pack_points(word, end);
    else if (g_.feature_major)
      pack_features(word, end);
    else
      pack_batch_rows(word, end);
  });
}

/// Calls `body` for the stretches of words that this worker packs.
void PackPass::for_each_stretch(const std::function<void(Value*, Value*)>& body) {
  const bool listed = layout_.has(kPackedWords);
  const std::int64_t most = stretch_words(g_);
  Value* words = layout_.number(LayoutNumber::words);
  Value* workers = layout_.number(LayoutNumber::workers);
  Value* stretches = listed ? v_.constant(layout_.entries(kPackedWords) / 2)
                            : ir_.CreateSDiv(v_.plus(words, v_.constant(most - 1)), v_.constant(most));
  Value* begin = ir_.CreateSDiv(ir_.CreateMul(v_.worker, stretches), workers);
  Value* end = ir_.CreateSDiv(ir_.CreateMul(v_.plus(v_.worker, v_.constant(1)), stretches), workers);
  v_.loop("stretch", begin, end, [&](Value* stretch) {
    if (listed) {
      Value* table = layout_.table(kPackedWords);
      Value* place = v_.times(stretch, 2);
      return body(v_.entry(table, place, "word"), v_.entry(table, v_.plus(place, v_.constant(1)), "end"));
    }
    Value* word = v_.times(stretch, most);
    body(word, ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v_.plus(word, v_.constant(most)), words));
  });
}

void PackPass::pack_batch_rows(Value* word, Value* end) {
  v_.loop("batch_rows", v_.constant(0), v_.constant(g_.packed_rows() / side_), [&](Value* group) {
    Value* first = v_.times(group, side_);
    const Rows rows = rows_from(first);
    for_each_square(word, end, [&](Value* k, bool clipped) {
      pack_square(rows.xs, rows.zs, rows.present, first, k, clipped);
    });
  });
}

/// `side_` rows of a panel.
PackPass::Rows PackPass::rows_from(Value* panel_row) {
  Rows rows;
  if (!g_.correlation) {
    Value* last = ir_.CreateSub(n_, v_.constant(1), "last_batch_row");
    for (std::int32_t r = 0; r < side_; ++r) {
      Value* wanted = v_.plus(v_.plus(first_batch_row_, panel_row), v_.constant(r));
      add_row(rows, ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, wanted, last),
              ir_.CreateICmpSLE(wanted, last));
    }
    return rows;
  }
  Value* points = v_.constant(g_.phase_points());
  Value* phase = ir_.CreateUDiv(panel_row, points);
  Value* point = v_.plus(ir_.CreateURem(panel_row, points), first_batch_row_);
  for (std::int32_t r = 0; r < side_; ++r) {
    const RowOfPoint of = row_of_point(v_, images_, phase, v_.plus(point, v_.constant(r)), *g_.correlation);
    add_row(rows, of.row, of.present);
  }
  return rows;
}

void PackPass::add_row(Rows& rows, Value* row, Value* present) {
  rows.xs.push_back(v_.at(x_.base, ir_.CreateMul(row, x_.stride_bytes)));
  if (z_.there()) rows.zs.push_back(v_.at(z_.base, ir_.CreateMul(row, z_.stride_bytes)));
  rows.present.push_back(present);
}

/// Calls `body` for each `side_` words from `word` on; `clipped` where x lacks some of their features.
void PackPass::for_each_square(Value* word, Value* end, const std::function<void(Value*, bool)>& body) {
  Value* squares = ir_.CreateSDiv(ir_.CreateSub(end, word), v_.constant(side_));
  Value* whole = squares;
  if (g_.cuts_in) {
    Value* there = ir_.CreateSub(ir_.CreateSDiv(in_features_, v_.constant(g_.word_elements)), word);
    whole =
        ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, squares, ir_.CreateSDiv(there, v_.constant(side_)));
    whole = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, whole, v_.constant(0));
  }
  v_.loop("words", v_.constant(0), whole,
          [&](Value* square) { body(v_.plus(word, v_.times(square, side_)), false); });
  if (!g_.cuts_in) return;
  v_.loop("cut_words", whole, squares,
          [&](Value* square) { body(v_.plus(word, v_.times(square, side_)), true); });
}

/// `side_` words of a batch row from word k on, in their own type.
PackPass::Value* PackPass::words_of(Value* row, Value* k, bool clipped) {
  if (clipped) {
    Value* elements =
        v_.load_clipped(g_.dtype, row, v_.times(k, g_.word_elements), in_features_, side_ * g_.word_elements);
    return g_.pairs() ? ir_.CreateBitCast(elements, v_.floats(side_)) : elements;
  }
  // Pairs are moved as words of 32 bits.
  const DType moved = g_.widens() ? g_.dtype : DType::f32;
  Value* from = v_.at(row, v_.times(k, g_.word_bytes));
  v_.prefetch(v_.beyond(from, ahead_));
  return v_.load_elements(moved, from, side_, g_.aligned(g_.dtype, std::int64_t{side_} * g_.word_bytes));
}

/// The batch rows of a small batch, one after the other.
void PackPass::pack_few(Value* word, Value* end) {
  Value* last = ir_.CreateSub(n_, v_.constant(1), "last_batch_row");
  Value* words = layout_.number(LayoutNumber::words);
  v_.loop("batch_row", v_.constant(0), v_.constant(g_.tile_n), [&](Value* number) {
    Value* batch_row =
        ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v_.plus(first_batch_row_, number), last);
    Value* to = v_.at(panel_, v_.times(ir_.CreateMul(number, words), 4));
    if (g_.feature_major) {
      v_.loop("word", word, end, [&](Value* k) {
        v_.store(batch_rows_of(k, batch_row, 1, false), v_.at(to, v_.times(k, 4)), 4);
      });
      return;
    }
    const auto row_of = [&](const Operand& operand) {
      return v_.at(operand.base, ir_.CreateMul(batch_row, operand.stride_bytes));
    };
    for_each_square(word, end, [&](Value* k, bool clipped) {
      const Elements elements = both([&](const Operand& one) { return words_of(row_of(one), k, clipped); });
      v_.store(packed(elements), v_.at(to, v_.times(k, 4)), 16);
    });
  });
}

void PackPass::pack_square(const Values& xs, const Values& zs, const Values& present, Value* batch_row,
                           Value* k, bool clipped) {
  Values values;
  for (std::size_t r = 0; r < xs.size(); ++r) {
    Value* value = packed({words_of(xs[r], k, clipped), zs.empty() ? nullptr : words_of(zs[r], k, clipped)});
    values.push_back(ir_.CreateSelect(present[r], value, llvm::Constant::getNullValue(v_.floats(side_))));
  }
  Value* to = nullptr;
  std::int64_t pitch = g_.panel_rows();
  if (g_.axis == Axis::output) {
    pitch = g_.line_words();
    Value* line = ir_.CreateSDiv(k, v_.constant(pitch));
    Value* within = ir_.CreateSub(k, v_.times(line, pitch));
    to = v_.plus(v_.times(v_.plus(v_.times(line, g_.tile_n), batch_row), pitch), within);
  } else {
    values = v_.transpose(values);
    to = v_.plus(v_.times(k, pitch), batch_row);
  }
  to = v_.at(panel_, v_.times(to, 4));
  for (std::int32_t r = 0; r < side_; ++r)
    v_.store(values[static_cast<std::size_t>(r)], v_.at(to, 4 * r * pitch), 16);
}

void PackPass::pack_features(Value* word, Value* end) {
  Value* present = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, ir_.CreateSub(n_, first_batch_row_),
                                             v_.constant(g_.tile_n));
  Value* whole = ir_.CreateSDiv(present, v_.constant(side_));
  v_.loop("word", word, end, [&](Value* k) {
    Value* to = v_.settled(v_.at(panel_, v_.times(k, std::int64_t{4} * g_.tile_n)));
    const auto vectors = [&](std::string_view name, Value* first, Value* stop, bool clipped) {
      v_.loop(name, first, stop, [&](Value* vector) {
        Value* batch_row = v_.times(vector, side_);
        v_.store(batch_rows_of(k, v_.plus(first_batch_row_, batch_row), side_, clipped),
                 v_.at(to, v_.times(batch_row, 4)), 16);
      });
    };
    vectors("batch_rows", v_.constant(0), whole, false);
    vectors("last_batch_rows", whole, v_.constant(g_.tile_n / side_), true);
  });
}

/// The planes of an image, feature by feature.
PackPass::Operand PackPass::of_image(const Operand& operand, Value* image) {
  return {v_.at(operand.base, ir_.CreateMul(image, operand.stride_bytes)),
          v_.times(ImageExtents(v_, *g_.correlation).input_positions(), element_bytes())};
}

/// Points that are neighbours in x are moved as a vector.
void PackPass::pack_points(Value* word, Value* end) {
  const Correlation& lattice = *g_.correlation;
  Value* of_phase = v_.constant(g_.phase_points());
  v_.loop("points", v_.constant(0), v_.constant(g_.packed_rows() / side_), [&](Value* group) {
    Value* first = v_.times(group, side_);
    Value* phase = ir_.CreateUDiv(first, of_phase);
    Value* number = v_.plus(ir_.CreateURem(first, of_phase), first_batch_row_);
    std::vector<RowOfPoint> points;
    for (std::int32_t r = 0; r < side_; ++r) {
      points.push_back(row_of_point(v_, {v_.constant(0)}, phase, v_.plus(number, v_.constant(r)), lattice));
    }
    Value* neighbours = are_neighbours(v_, points);
    Value* panel = v_.at(panel_, v_.times(first, 4));
    const auto pack = [&](std::string_view name, Value* condition, const std::function<Value*(Value*)>& of) {
      v_.branch(name, condition, [&] {
        v_.loop("word", word, end,
                [&](Value* k) { v_.store(of(k), v_.at(panel, v_.times(k, 4 * g_.panel_rows())), 16); });
      });
    };
    pack("neighbours", neighbours, [&](Value* k) { return batch_rows_of(k, points[0].row, side_, false); });
    pack("apart", ir_.CreateNot(neighbours), [&](Value* k) { return points_of(k, points); });
  });
}

/// Word k of points, one by one; zeros where they are outside.
PackPass::Value* PackPass::points_of(Value* k, const std::vector<RowOfPoint>& points) {
  Value* values = llvm::Constant::getNullValue(v_.floats(side_));
  for (std::size_t r = 0; r < points.size(); ++r) {
    Value* one = ir_.CreateExtractElement(batch_rows_of(k, points[r].row, 1, false), std::uint64_t{0});
    one = ir_.CreateSelect(points[r].present, one, llvm::ConstantFP::get(ir_.getFloatTy(), 0));
    values = ir_.CreateInsertElement(values, one, static_cast<std::uint64_t>(r));
  }
  return values;
}

/// Word k of `count` batch rows, as it is packed.
PackPass::Value* PackPass::batch_rows_of(Value* k, Value* batch_row, std::int32_t count, bool clipped) {
  Values features;  // of the word
  for (std::int32_t half = 0; half < g_.word_elements; ++half) {
    Value* wanted = v_.plus(v_.times(k, g_.word_elements), v_.constant(half));
    Value* feature = wanted;
    if (g_.cuts_in)
      feature = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, wanted,
                                          ir_.CreateSub(in_features_, v_.constant(1)));
    const Elements elements = both([&](const Operand& operand) {
      Value* row = v_.at(operand.base, ir_.CreateMul(feature, operand.stride_bytes));
      if (clipped) return v_.load_clipped(g_.dtype, row, batch_row, n_, count);
      return v_.load_elements(g_.dtype, v_.at(row, v_.times(batch_row, element_bytes())), count,
                              g_.aligned(g_.dtype, count * element_bytes()));
    });
    Value* value = g_.pairs() ? ir_.CreateZExt(packed_half(elements), v_.ints(count)) : packed(elements);
    if (g_.cuts_in)
      value = ir_.CreateSelect(ir_.CreateICmpEQ(wanted, feature), value,
                               llvm::Constant::getNullValue(value->getType()));
    features.push_back(value);
  }
  if (!g_.pairs()) return features[0];
  Value* upper = ir_.CreateShl(features[1], v_.splat(ir_.getInt32(16), count));
  return ir_.CreateBitCast(ir_.CreateOr(features[0], upper), v_.floats(count));
}

/// Elements of pairs times the derivative, where there is one.
PackPass::Value* PackPass::packed_half(const Elements& elements) {
  if (elements.z == nullptr) return elements.x;
  Value* slope = derivative(v_, g_.derivative, v_.widened(g_.dtype, elements.z));
  Value* product = ir_.CreateFMul(v_.widened(g_.dtype, elements.x), slope);
  return ir_.CreateBitCast(v_.rounded_to(g_.dtype, product), elements.x->getType());
}

/// Words of pairs times the derivative, each element rounded.
PackPass::Value* PackPass::packed_pairs(const Elements& words) {
  const auto count =
      2 * static_cast<std::int32_t>(
              llvm::cast<llvm::FixedVectorType>(words.x->getType())->getElementCount().getFixedValue());
  auto* type =
      llvm::FixedVectorType::get(llvm::Type::getInt16Ty(ir_.getContext()), static_cast<unsigned>(count));
  const auto widened = [&](Value* value) { return v_.widened(g_.dtype, ir_.CreateBitCast(value, type)); };
  Value* slope = derivative(v_, g_.derivative, widened(words.z));
  Value* elements = v_.rounded_to(g_.dtype, ir_.CreateFMul(widened(words.x), slope));
  return ir_.CreateBitCast(elements, words.x->getType());
}

/// As they are multiplied: pairs, which come as words, as words, others as float32.
PackPass::Value* PackPass::packed(const Elements& elements) {
  if (g_.pairs() && elements.z != nullptr) return packed_pairs(elements);
  if (g_.pairs()) return elements.x;
  Value* x = v_.widened(g_.dtype, elements.x);
  if (elements.z == nullptr) return x;
  Value* slope = derivative(v_, g_.derivative, v_.widened(g_.dtype, elements.z));
  return v_.widened(g_.dtype, v_.rounded_to(g_.dtype, ir_.CreateFMul(x, slope)));
}

}  // namespace

TileWorkspace locate_workspace(VectorIr& v, llvm::Value* tile, const Geometry& geometry,
                               const LayoutIr& layout) {
  const auto each_tile = [&](LayoutNumber number) { return v.ir.CreateMul(tile, layout.number(number)); };
  llvm::Value* base = v.argument(v.ir.getPtrTy(), offsetof(Call, workspace), "workspace");
  llvm::Value* tile_offset =
      v.plus(each_tile(LayoutNumber::tile_bytes), layout.number(LayoutNumber::counter_bytes));
  TileWorkspace result{};
  result.counters = v.at(base, v.times(each_tile(LayoutNumber::counters), 4), "counters");
  result.panel = v.at(base, tile_offset, "panel");
  result.partials =
      v.at(result.panel, v.times(layout.number(LayoutNumber::words), geometry.panel_word_bytes()));
  return result;
}

void emit_pack_pass(VectorIr& v, std::string_view name, const Geometry& g, LayoutIr& layout) {
  PackPass(v, g, layout).emit(name);
}

std::int64_t stretch_words(const Geometry& geometry) { return kStretchBytes / geometry.word_bytes; }

}  // namespace sparsekiln::cpu
