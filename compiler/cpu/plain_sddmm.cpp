#include "compiler/cpu/plain_sddmm.h"

#include <algorithm>
#include <cstddef>
#include <functional>

#include <fmt/format.h>
#include <llvm/IR/Intrinsics.h>
#include <sparsekiln/error.h>

#include "compiler/cpu/activation_ir.h"
#include "compiler/cpu/lattice_ir.h"
#include "compiler/cpu/plain_ir.h"
#include "compiler/cpu/sddmm_geometry.h"
#include "compiler/launch_operands.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::int32_t kMostBatchRows = 64;
/// Sums that are held in registers while a chunk of the batch is added: outputs × vectors of features.
constexpr std::int32_t kOutputs = 4;
constexpr std::int32_t kVectors = 2;

class PlainSddmm {
 public:
  PlainSddmm(VectorIr& v, const Sddmm& gradient, const Config& config, LayoutIr& layout)
      : v_(v), ir_(v.ir), p_(v, gradient), problem_(gradient), layout_(layout), chunk_(config.tile_n) {
    lanes_ = p_.most_lanes();
    vectors_ = std::min(kVectors, problem_.block.in / lanes_);
    const Operand x{.pointer = offsetof(LaunchPairs::Pair, x),
                    .stride = offsetof(LaunchOperands, x_stride),
                    .features = LayoutNumber::in_features};
    const Operand dy{.pointer = offsetof(LaunchPairs::Pair, dy),
                     .stride = offsetof(LaunchOperands, y_stride),
                     .features = LayoutNumber::out_features,
                     .derives = gradient.derivative != Activation::none};
    of_cols_ = {gradient.exchanged() ? dy : x, problem_.block.in};
    of_rows_ = {gradient.exchanged() ? x : dy, problem_.block.out};
  }

  void emit(const std::string& name) {
    v_.begin_pass(name);
    const auto [out, in] = problem_.block;
    sums_ = p_.stack(std::int64_t{out} * in, "sums");
    of_cols_.chunk = p_.stack(std::int64_t{chunk_} * in, "chunk_of_cols");
    of_rows_.chunk = p_.stack(std::int64_t{chunk_} * out, "chunk_of_rows");
    if (problem_.bias_gradient) bias_sums_ = p_.stack(of_bias().width, "bias_sums");
    locate();
    Value* first = v_.entry(worker_begin_, v_.worker, "runs.begin");
    Value* end = v_.entry(worker_begin_, v_.plus(v_.worker, v_.constant(1)), "runs.end");
    v_.loop("run", first, end, [&](Value* number) { run(v_.times(number, kRunFields)); });
    if (problem_.bias_gradient && problem_.exchanged()) sum_bias_of_cols();
    v_.end_pass();
  }

 private:
  using Value = llvm::Value;
  using Values = VectorIr::Values;

  /// x or dy.
  struct Operand {
    std::size_t pointer;    ///< of a pair
    std::size_t stride;     ///< of the call
    LayoutNumber features;  ///< how many there are
    bool derives = false;   ///< it is multiplied by the derivative at z
  };
  /// What the columns or the rows of dw are of, and the chunk of it that is multiplied.
  struct Side {
    Operand operand;
    std::int32_t width = 0;  ///< features of a block
    Value* chunk = nullptr;  ///< [batch row][feature]
    Value* features = nullptr;
    Value* stride = nullptr;
  };
  /// Where a chunk's row is in memory; `present` null: it is there.
  using RowOf = std::function<RowOfPoint(Value* number)>;

  [[nodiscard]] const Side& of_bias() const { return problem_.exchanged() ? of_cols_ : of_rows_; }
  [[nodiscard]] Value* pointer(std::size_t offset, const char* name) {
    return v_.argument(ir_.getPtrTy(), offset, name);
  }
  [[nodiscard]] Value* number(std::size_t offset, const char* name) {
    return v_.argument(ir_.getInt64Ty(), offset, name);
  }
  [[nodiscard]] Value* smaller(Value* a, Value* b) {
    return ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, b);
  }

  void locate() {
    worker_begin_ = layout_.table(kRunBegin);
    runs_ = layout_.table(kRuns);
    columns_ = layout_.table(kBlockColumns);
    if (problem_.correlation) places_ = layout_.table(kBlockPlaces);
    for (Side* const side : {&of_cols_, &of_rows_}) {
      side->features = layout_.number(side->operand.features);
      side->stride = number(side->operand.stride, "stride");
    }
    dw_ = pointer(offsetof(LaunchOperands, y), "dw");
    n_ = number(offsetof(LaunchOperands, n), "n");
    product_rows_ = !problem_.correlation
                        ? n_
                        : ir_.CreateMul(n_, ImageExtents(v_, *problem_.correlation).lattice_points());
    if (problem_.derivative != Activation::none)
      z_stride_ = number(offsetof(LaunchOperands, z_stride), "z_stride");
    Value* count = v_.load(ir_.getInt32Ty(),
                           v_.at(v_.call, static_cast<std::int64_t>(offsetof(LaunchOperands, pairs) +
                                                                    offsetof(LaunchPairs, count))),
                           4, "pairs");
    pairs_ = ir_.CreateZExt(count, ir_.getInt64Ty());
    if (problem_.block_scales)
      block_scales_ = pointer(offsetof(LaunchOperands, block_scales), "block_scales");
    if (problem_.bias_gradient) dbias_ = pointer(offsetof(LaunchOperands, dbias), "dbias");
    if (problem_.block_scale_gradient) {
      w_ = pointer(offsetof(LaunchOperands, w), "w");
      dblock_scales_ = pointer(offsetof(LaunchOperands, dblock_scales), "dblock_scales");
    }
    if (problem_.epilogue.scale) {
      alpha_ = p_.alpha();
      beta_ = p_.beta();
    }
  }

  void run(Value* fields) {
    const auto field = [&](std::int64_t index, const char* name) {
      return v_.entry(runs_, v_.plus(fields, v_.constant(index)), name);
    };
    Value* row = field(0, "row");
    Value* first = field(1, "first_block");
    v_.loop("block", first, v_.plus(first, field(2, "blocks")), [&](Value* block) { sum_block(row, block); });
    if (!problem_.bias_gradient || problem_.exchanged()) return;
    v_.branch("bias", ir_.CreateICmpNE(field(3, "first_of_row"), v_.constant(0)), [&] { sum_bias(row); });
  }

  /// Calls body(pair, begin, count) for the chunks of `batch_rows` batch rows of each pair.
  void for_each_chunk(Value* batch_rows, const std::function<void(Value*, Value*, Value*)>& body) {
    Value* chunks = ir_.CreateSDiv(v_.plus(batch_rows, v_.constant(chunk_ - 1)), v_.constant(chunk_));
    v_.loop("pair", v_.constant(0), pairs_, [&](Value* pair) {
      v_.loop("chunk", v_.constant(0), chunks, [&](Value* chunk) {
        Value* begin = v_.times(chunk, chunk_);
        body(pair, begin, smaller(v_.constant(chunk_), ir_.CreateSub(batch_rows, begin)));
      });
    });
  }

  /// One operand of a pair.
  [[nodiscard]] Value* operand(Value* pair, std::size_t member, const char* name) {
    Value* at = v_.plus(v_.times(pair, sizeof(LaunchPairs::Pair)),
                        v_.constant(static_cast<std::int64_t>(offsetof(LaunchOperands, pairs) + member)));
    return v_.load(ir_.getPtrTy(), v_.at(v_.call, at), 8, name);
  }
  /// Where an element of an activation lies.
  [[nodiscard]] Value* place(Value* stride, Value* batch_row, Value* feature) {
    Value* major = problem_.feature_major() ? feature : batch_row;
    Value* minor = problem_.feature_major() ? batch_row : feature;
    return v_.plus(ir_.CreateMul(major, stride), minor);
  }

  /// Copies `count` rows of a block's features, those that `row_of` says for each from `begin` on, and zeros
  /// beyond the last feature and for rows that are not there.
  void copy(const Side& side, Value* pair, Value* block, Value* begin, Value* count, const RowOf& row_of) {
    Value* base = operand(pair, side.operand.pointer, "operand");
    Value* z = side.operand.derives ? operand(pair, offsetof(LaunchPairs::Pair, z), "z") : nullptr;
    Value* first = v_.times(block, side.width);
    Value* width = v_.constant(side.width);
    Value* existing = smaller(width, ir_.CreateSub(side.features, first));
    v_.loop("copied_row", v_.constant(0), count, [&](Value* number) {
      const RowOfPoint row = row_of(v_.plus(begin, number));
      Value* to = v_.times(number, side.width);
      Value* copied =
          row.present == nullptr ? existing : ir_.CreateSelect(row.present, existing, v_.constant(0));
      v_.loop("copied", v_.constant(0), copied, [&](Value* feature) {
        p_.store_sums(element(side, base, z, row.row, v_.plus(first, feature)), side.chunk,
                      v_.plus(to, feature));
      });
      v_.loop("beyond", copied, width,
              [&](Value* feature) { p_.store_sums(p_.zeros(1), side.chunk, v_.plus(to, feature)); });
    });
  }

  /// An element, times the derivative at z where there is one.
  [[nodiscard]] Value* element(const Side& side, Value* base, Value* z, Value* row, Value* feature) {
    Value* value = p_.load_operand(base, place(side.stride, row, feature));
    if (z == nullptr) return value;
    Value* slope = derivative(v_, problem_.derivative, p_.load_operand(z, place(z_stride_, row, feature)));
    return p_.as_operand(ir_.CreateFMul(value, slope));
  }

  [[nodiscard]] static RowOfPoint in_order(Value* number) { return {number, nullptr}; }
  /// The row that a block's tap reads for row `number` of the other operand. `tap`: where it begins in an
  /// image's points.
  [[nodiscard]] RowOfPoint displaced(Value* number, Value* tap) {
    const Correlation& lattice = *problem_.correlation;
    const ImageExtents extents(v_, lattice);
    Value* positions = extents.lattice_points();
    Value* height = extents.points(1);
    Value* width = extents.points(2);
    Value* within = ir_.CreateURem(number, positions);
    Value* line = ir_.CreateUDiv(within, width);
    Value* point =
        v_.plus(v_.times(ir_.CreateUDiv(line, height), lattice.pitch[1]), ir_.CreateURem(line, height));
    point = v_.plus(v_.times(point, lattice.pitch[2]), ir_.CreateURem(within, width));
    Value* of_phase = v_.constant(lattice.image_phase_points());
    return row_of_point(v_, {ir_.CreateUDiv(number, positions)}, ir_.CreateUDiv(tap, of_phase),
                        v_.plus(point, ir_.CreateURem(tap, of_phase)), lattice);
  }

  void sum_block(Value* row, Value* block) {
    const auto [out, in] = problem_.block;
    Value* column = v_.entry(columns_, block, "column");
    Value* of_block_scale = layout_.has(kScaleOfBlock)
                                ? v_.entry(layout_.table(kScaleOfBlock), block, "scale_number")
                                : v_.quotient(block, std::max(1, problem_.block_scale_map.taps()));
    Value* block_scale = problem_.block_scales ? p_.load_sums(block_scales_, of_block_scale) : nullptr;
    // Where a block scale is 0 nothing is summed, unless its own gradient asks for the sums.
    const bool skips = problem_.block_scales && !problem_.block_scale_gradient;
    Value* batch_rows =
        skips ? ir_.CreateSelect(p_.is_not_zero(block_scale), product_rows_, v_.constant(0)) : product_rows_;
    Value* tap = places_ == nullptr ? nullptr : v_.entry(places_, block, "tap");
    p_.clear(sums_, std::int64_t{out} * in);
    for_each_chunk(batch_rows, [&](Value* pair, Value* begin, Value* count) {
      copy(of_cols_, pair, column, begin, count,
           [&](Value* number) { return tap == nullptr ? in_order(number) : displaced(number, tap); });
      copy(of_rows_, pair, row, begin, count, in_order);
      add_chunk(count);
    });
    Value* outputs = smaller(v_.constant(out), ir_.CreateSub(of_rows_.features, v_.times(row, out)));
    Value* inputs = smaller(v_.constant(in), ir_.CreateSub(of_cols_.features, v_.times(column, in)));
    if (problem_.block_scale_gradient) store_block_scale_gradient(block, outputs, inputs);
    store_block(block, block_scale, outputs, inputs);
  }

  /// Adds dyᵀ · x of the chunk to the sums.
  void add_chunk(Value* count) {
    const auto [out, in] = problem_.block;
    const std::int32_t features = vectors_ * lanes_;
    v_.loop("outputs", v_.constant(0), v_.constant(out / kOutputs), [&](Value* output_tile) {
      v_.loop("features", v_.constant(0), v_.constant(in / features), [&](Value* feature_tile) {
        Value* output = v_.times(output_tile, kOutputs);
        Value* feature = v_.times(feature_tile, features);
        const auto index = [&](std::int32_t o, std::int32_t vector) {
          Value* first = v_.plus(v_.times(v_.plus(output, v_.constant(o)), in), feature);
          return v_.plus(first, v_.constant(std::int64_t{vector} * lanes_));
        };
        Values sums;
        for (std::int32_t o = 0; o < kOutputs; ++o)
          for (std::int32_t vector = 0; vector < vectors_; ++vector)
            sums.push_back(p_.load_sums(sums_, index(o, vector), lanes_));
        sums = v_.loop("batch_row", v_.constant(0), count, sums, [&](Value* batch_row, const Values& now) {
          Values x;
          for (std::int32_t vector = 0; vector < vectors_; ++vector)
            x.push_back(p_.load_sums(of_cols_.chunk,
                                     v_.plus(v_.plus(v_.times(batch_row, in), feature),
                                             v_.constant(std::int64_t{vector} * lanes_)),
                                     lanes_));
          Values next;
          for (std::int32_t o = 0; o < kOutputs; ++o) {
            Value* at = v_.plus(v_.plus(v_.times(batch_row, out), output), v_.constant(o));
            Value* dy = p_.broadcast(p_.load_sums(of_rows_.chunk, at), lanes_);
            for (std::int32_t vector = 0; vector < vectors_; ++vector)
              next.push_back(v_.multiply_add(x[static_cast<std::size_t>(vector)], dy, now[next.size()]));
          }
          return next;
        });
        std::size_t i = 0;
        for (std::int32_t o = 0; o < kOutputs; ++o)
          for (std::int32_t vector = 0; vector < vectors_; ++vector)
            p_.store_sums(sums[i++], sums_, index(o, vector));
      });
    });
  }

  /// alpha · sum + beta · what was there.
  [[nodiscard]] Value* scaled(Value* sum, const std::function<Value*()>& old) {
    if (alpha_ == nullptr) return sum;
    return added(ir_.CreateFMul(sum, alpha_), old);
  }
  [[nodiscard]] Value* added(Value* sum, const std::function<Value*()>& old) {
    return v_.choose("old", p_.is_not_zero(beta_), sum, [&] { return v_.multiply_add(beta_, old(), sum); });
  }
  /// A sum into dbias or dblock_scales.
  void store_sum(Value* sum, Value* base, Value* index) {
    p_.store_sums(scaled(sum, [&] { return p_.load_sums(base, index); }), base, index);
  }

  void store_block_scale_gradient(Value* block, Value* outputs, Value* inputs) {
    const auto [out, in] = problem_.block;
    Value* first = v_.times(block, std::int64_t{out} * in);
    const Values sum =
        v_.loop("block_scale_output", v_.constant(0), outputs, {p_.zeros(1)},
                [&](Value* output, const Values& of_rows) {
                  return v_.loop("block_scale_input", v_.constant(0), inputs, of_rows,
                                 [&](Value* input, const Values& now) {
                                   Value* at = v_.plus(v_.times(output, problem_.block.in), input);
                                   Value* w = p_.load_operand(w_, v_.plus(first, at));
                                   return Values{v_.multiply_add(p_.load_sums(sums_, at), w, now[0])};
                                 });
                });
    store_sum(sum[0], dblock_scales_, block);
  }

  void store_block(Value* block, Value* block_scale, Value* outputs, Value* inputs) {
    const auto [out, in] = problem_.block;
    Value* first = v_.times(block, std::int64_t{out} * in);
    Value* factor = block_scale;  // null: none
    if (alpha_ != nullptr) factor = block_scale == nullptr ? alpha_ : ir_.CreateFMul(alpha_, block_scale);
    v_.loop("stored_output", v_.constant(0), v_.constant(out), [&](Value* output) {
      v_.loop("stored_input", v_.constant(0), v_.constant(problem_.block.in), [&](Value* input) {
        Value* within = v_.plus(v_.times(output, problem_.block.in), input);
        Value* at = v_.plus(first, within);
        Value* sum = p_.load_sums(sums_, within);
        if (factor != nullptr) sum = ir_.CreateFMul(sum, factor);
        // Where a block scale is 0 the product is 0, whatever was summed.
        if (block_scale != nullptr) sum = ir_.CreateSelect(p_.is_not_zero(factor), sum, p_.zeros(1));
        if (alpha_ != nullptr) sum = added(sum, [&] { return p_.load_output(dw_, at); });
        Value* exists = ir_.CreateAnd(ir_.CreateICmpSLT(output, outputs), ir_.CreateICmpSLT(input, inputs));
        p_.store_output(ir_.CreateSelect(exists, sum, p_.zeros(1)), dw_, at);
      });
    });
  }

  /// The worker's share of the block columns, where those are dy's.
  void sum_bias_of_cols() {
    Value* workers = layout_.number(LayoutNumber::workers);
    Value* columns = v_.constant(problem_.in_blocks());
    Value* first = ir_.CreateUDiv(ir_.CreateMul(v_.worker, columns), workers);
    Value* end = ir_.CreateUDiv(ir_.CreateMul(v_.plus(v_.worker, v_.constant(1)), columns), workers);
    v_.loop("bias_column", first, end, [&](Value* column) { sum_bias(column); });
  }

  [[nodiscard]] Value* dy_rows() {
    if (!problem_.correlation) return n_;
    const ImageExtents extents(v_, *problem_.correlation);
    return ir_.CreateMul(n_, problem_.exchanged() ? extents.input_positions() : extents.output_positions());
  }

  /// For a block of dy's features.
  void sum_bias(Value* block) {
    const Side& dy = of_bias();
    Value* first = v_.times(block, dy.width);
    Value* outputs = smaller(v_.constant(dy.width), ir_.CreateSub(dy.features, first));
    p_.clear(bias_sums_, dy.width);
    for_each_chunk(dy_rows(), [&](Value* pair, Value* begin, Value* count) {
      copy(dy, pair, block, begin, count, in_order);
      v_.loop("bias_batch_row", v_.constant(0), count, [&](Value* batch_row) {
        v_.loop("bias_output", v_.constant(0), outputs, [&](Value* output) {
          Value* value = p_.load_sums(dy.chunk, v_.plus(v_.times(batch_row, dy.width), output));
          p_.store_sums(ir_.CreateFAdd(p_.load_sums(bias_sums_, output), value), bias_sums_, output);
        });
      });
    });
    v_.loop("stored_bias", v_.constant(0), outputs, [&](Value* output) {
      store_sum(p_.load_sums(bias_sums_, output), dbias_, v_.plus(first, output));
    });
  }

  VectorIr& v_;
  llvm::IRBuilder<>& ir_;
  PlainIr p_;
  const Sddmm& problem_;
  LayoutIr& layout_;
  std::int32_t chunk_;  ///< batch rows that are copied at a time
  std::int32_t lanes_ = 1;
  std::int32_t vectors_ = 1;
  Value* worker_begin_ = nullptr;
  Value* runs_ = nullptr;
  Value* columns_ = nullptr;
  Value* places_ = nullptr;  ///< of a convolution
  Side of_cols_;
  Side of_rows_;
  Value* sums_ = nullptr;  ///< [output][input]
  Value* bias_sums_ = nullptr;
  Value* dw_ = nullptr;
  Value* w_ = nullptr;
  Value* block_scales_ = nullptr;
  Value* dbias_ = nullptr;
  Value* dblock_scales_ = nullptr;
  Value* alpha_ = nullptr;
  Value* beta_ = nullptr;
  Value* n_ = nullptr;
  Value* product_rows_ = nullptr;
  Value* pairs_ = nullptr;
  Value* z_stride_ = nullptr;
};

}  // namespace

void validate_plain(const Sddmm& gradient, const Config& config) {
  if (config.tile_n <= kMostBatchRows && config.stages == 1) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("config '{}' for {}: tile_n is at most {}, and stages=1 would work",
                          to_string(config), name(gradient.dtype), kMostBatchRows));
}

void emit_plain_sddmm(VectorIr& ir, const std::string& name, const Sddmm& gradient, const Config& config,
                      LayoutIr& layout) {
  PlainSddmm(ir, gradient, config, layout).emit(name);
}

}  // namespace sparsekiln::cpu
