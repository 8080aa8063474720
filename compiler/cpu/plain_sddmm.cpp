#include "compiler/cpu/plain_sddmm.h"

#include <algorithm>
#include <cstddef>
#include <functional>

#include <fmt/format.h>
#include <llvm/IR/Intrinsics.h>
#include <sparsekiln/error.h>

#include "compiler/cpu/activation_ir.h"
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
  }

  void emit(const std::string& name) {
    v_.begin_pass(name);
    const auto [out, in] = problem_.block;
    sums_ = p_.stack(std::int64_t{out} * in, "sums");
    x_chunk_ = p_.stack(std::int64_t{chunk_} * in, "x_chunk");
    dy_chunk_ = p_.stack(std::int64_t{chunk_} * out, "dy_chunk");
    if (problem_.bias_gradient) bias_sums_ = p_.stack(out, "bias_sums");
    locate();
    Value* first = v_.entry(worker_begin_, v_.worker, "runs.begin");
    Value* end = v_.entry(worker_begin_, v_.plus(v_.worker, v_.constant(1)), "runs.end");
    v_.loop("run", first, end, [&](Value* number) { run(v_.times(number, kRunFields)); });
    v_.end_pass();
  }

 private:
  using Value = llvm::Value;
  using Values = VectorIr::Values;

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
    in_features_ = layout_.number(LayoutNumber::in_features);
    out_features_ = layout_.number(LayoutNumber::out_features);
    dw_ = pointer(offsetof(LaunchOperands, y), "dw");
    n_ = number(offsetof(LaunchOperands, n), "n");
    x_stride_ = number(offsetof(LaunchOperands, x_stride), "x_stride");
    dy_stride_ = number(offsetof(LaunchOperands, y_stride), "dy_stride");
    if (problem_.derivative != Activation::none)
      z_stride_ = number(offsetof(LaunchOperands, z_stride), "z_stride");
    Value* count = v_.load(ir_.getInt32Ty(),
                           v_.at(v_.call, static_cast<std::int64_t>(offsetof(LaunchOperands, pairs) +
                                                                    offsetof(LaunchPairs, count))),
                           4, "pairs");
    pairs_ = ir_.CreateZExt(count, ir_.getInt64Ty());
    if (problem_.gates) gates_ = pointer(offsetof(LaunchOperands, gates), "gates");
    if (problem_.bias_gradient) dbias_ = pointer(offsetof(LaunchOperands, dbias), "dbias");
    if (problem_.gate_gradient) {
      w_ = pointer(offsetof(LaunchOperands, w), "w");
      dgates_ = pointer(offsetof(LaunchOperands, dgates), "dgates");
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
    if (!problem_.bias_gradient) return;
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

  /// Copies `count` batch rows of a block's features, [batch_row][feature], and zeros beyond the last
  /// feature.
  void copy(Value* to, std::int32_t width, Value* count, Value* first_feature, Value* features,
            const std::function<Value*(Value* batch_row, Value* feature)>& element) {
    Value* existing = smaller(v_.constant(width), ir_.CreateSub(features, first_feature));
    v_.loop("copied_batch_row", v_.constant(0), count, [&](Value* batch_row) {
      Value* base = v_.times(batch_row, width);
      v_.loop("copied", v_.constant(0), existing, [&](Value* feature) {
        p_.store_sums(element(batch_row, v_.plus(first_feature, feature)), to, v_.plus(base, feature));
      });
      v_.loop("beyond", existing, v_.constant(width),
              [&](Value* feature) { p_.store_sums(p_.zeros(1), to, v_.plus(base, feature)); });
    });
  }

  void copy_x(Value* pair, Value* begin, Value* count, Value* column) {
    Value* x = operand(pair, offsetof(LaunchPairs::Pair, x), "x");
    copy(x_chunk_, problem_.block.in, count, v_.times(column, problem_.block.in), in_features_,
         [&](Value* batch_row, Value* feature) {
           return p_.load_operand(x, place(x_stride_, v_.plus(begin, batch_row), feature));
         });
  }

  void copy_dy(Value* pair, Value* begin, Value* count, Value* row) {
    Value* dy = operand(pair, offsetof(LaunchPairs::Pair, dy), "dy");
    const bool derives = problem_.derivative != Activation::none;
    Value* z = derives ? operand(pair, offsetof(LaunchPairs::Pair, z), "z") : nullptr;
    copy(dy_chunk_, problem_.block.out, count, v_.times(row, problem_.block.out), out_features_,
         [&](Value* batch_row, Value* feature) {
           Value* at = v_.plus(begin, batch_row);
           Value* value = p_.load_operand(dy, place(dy_stride_, at, feature));
           if (!derives) return value;
           Value* slope =
               derivative(v_, problem_.derivative, p_.load_operand(z, place(z_stride_, at, feature)));
           return p_.as_operand(ir_.CreateFMul(value, slope));
         });
  }

  void sum_block(Value* row, Value* block) {
    const auto [out, in] = problem_.block;
    Value* column = v_.entry(columns_, block, "column");
    Value* gate = problem_.gates ? p_.load_sums(gates_, block) : nullptr;
    // Where a gate is 0 nothing is summed, unless its own gradient asks for the sums.
    const bool skips = problem_.gates && !problem_.gate_gradient;
    Value* batch_rows = skips ? ir_.CreateSelect(p_.is_not_zero(gate), n_, v_.constant(0)) : n_;
    p_.clear(sums_, std::int64_t{out} * in);
    for_each_chunk(batch_rows, [&](Value* pair, Value* begin, Value* count) {
      copy_x(pair, begin, count, column);
      copy_dy(pair, begin, count, row);
      add_chunk(count);
    });
    Value* outputs = smaller(v_.constant(out), ir_.CreateSub(out_features_, v_.times(row, out)));
    Value* inputs = smaller(v_.constant(in), ir_.CreateSub(in_features_, v_.times(column, in)));
    if (problem_.gate_gradient) store_gate(block, outputs, inputs);
    store_block(block, gate, outputs, inputs);
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
            x.push_back(p_.load_sums(x_chunk_,
                                     v_.plus(v_.plus(v_.times(batch_row, in), feature),
                                             v_.constant(std::int64_t{vector} * lanes_)),
                                     lanes_));
          Values next;
          for (std::int32_t o = 0; o < kOutputs; ++o) {
            Value* at = v_.plus(v_.plus(v_.times(batch_row, out), output), v_.constant(o));
            Value* dy = p_.broadcast(p_.load_sums(dy_chunk_, at), lanes_);
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
  /// A sum into dbias or dgates.
  void store_sum(Value* sum, Value* base, Value* index) {
    p_.store_sums(scaled(sum, [&] { return p_.load_sums(base, index); }), base, index);
  }

  void store_gate(Value* block, Value* outputs, Value* inputs) {
    const auto [out, in] = problem_.block;
    Value* first = v_.times(block, std::int64_t{out} * in);
    const Values sum = v_.loop(
        "gate_output", v_.constant(0), outputs, {p_.zeros(1)}, [&](Value* output, const Values& of_rows) {
          return v_.loop("gate_input", v_.constant(0), inputs, of_rows, [&](Value* input, const Values& now) {
            Value* at = v_.plus(v_.times(output, problem_.block.in), input);
            Value* w = p_.load_operand(w_, v_.plus(first, at));
            return Values{v_.multiply_add(p_.load_sums(sums_, at), w, now[0])};
          });
        });
    store_sum(sum[0], dgates_, block);
  }

  void store_block(Value* block, Value* gate, Value* outputs, Value* inputs) {
    const auto [out, in] = problem_.block;
    Value* first = v_.times(block, std::int64_t{out} * in);
    Value* factor = gate;  // null: none
    if (alpha_ != nullptr) factor = gate == nullptr ? alpha_ : ir_.CreateFMul(alpha_, gate);
    v_.loop("stored_output", v_.constant(0), v_.constant(out), [&](Value* output) {
      v_.loop("stored_input", v_.constant(0), v_.constant(problem_.block.in), [&](Value* input) {
        Value* within = v_.plus(v_.times(output, problem_.block.in), input);
        Value* at = v_.plus(first, within);
        Value* sum = p_.load_sums(sums_, within);
        if (factor != nullptr) sum = ir_.CreateFMul(sum, factor);
        // Where a gate is 0 the product is 0, whatever was summed.
        if (gate != nullptr) sum = ir_.CreateSelect(p_.is_not_zero(factor), sum, p_.zeros(1));
        if (alpha_ != nullptr) sum = added(sum, [&] { return p_.load_output(dw_, at); });
        Value* exists = ir_.CreateAnd(ir_.CreateICmpSLT(output, outputs), ir_.CreateICmpSLT(input, inputs));
        p_.store_output(ir_.CreateSelect(exists, sum, p_.zeros(1)), dw_, at);
      });
    });
  }

  void sum_bias(Value* row) {
    const std::int32_t out = problem_.block.out;
    Value* first = v_.times(row, out);
    Value* outputs = smaller(v_.constant(out), ir_.CreateSub(out_features_, first));
    p_.clear(bias_sums_, out);
    for_each_chunk(n_, [&](Value* pair, Value* begin, Value* count) {
      copy_dy(pair, begin, count, row);
      v_.loop("bias_batch_row", v_.constant(0), count, [&](Value* batch_row) {
        v_.loop("bias_output", v_.constant(0), outputs, [&](Value* output) {
          Value* dy = p_.load_sums(dy_chunk_, v_.plus(v_.times(batch_row, out), output));
          p_.store_sums(ir_.CreateFAdd(p_.load_sums(bias_sums_, output), dy), bias_sums_, output);
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
  Value* in_features_ = nullptr;
  Value* out_features_ = nullptr;
  Value* sums_ = nullptr;      ///< [output][input]
  Value* x_chunk_ = nullptr;   ///< [batch_row][input]
  Value* dy_chunk_ = nullptr;  ///< [batch_row][output]
  Value* bias_sums_ = nullptr;
  Value* dw_ = nullptr;
  Value* w_ = nullptr;
  Value* gates_ = nullptr;
  Value* dbias_ = nullptr;
  Value* dgates_ = nullptr;
  Value* alpha_ = nullptr;
  Value* beta_ = nullptr;
  Value* n_ = nullptr;
  Value* pairs_ = nullptr;
  Value* x_stride_ = nullptr;
  Value* dy_stride_ = nullptr;
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
