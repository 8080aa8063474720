#include "compiler/cpu/plain_spmm.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <llvm/IR/Intrinsics.h>
#include <sparsekiln/error.h>

#include "compiler/cpu/activation_ir.h"
#include "compiler/cpu/cell_ir.h"
#include "compiler/cpu/epilogue_formula.h"
#include "compiler/cpu/lattice_ir.h"
#include "compiler/cpu/plain_ir.h"
#include "compiler/cpu/product_data.h"
#include "compiler/operand_table.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::int32_t kMostBatchRows = 64;
/// Sums that are held in registers: as many chains as keep the multiply-adders busy.
constexpr std::int32_t kMostSums = 8;
constexpr std::int32_t kMostVectors = 2;  ///< of batch rows, for each of their outputs
constexpr std::int32_t kTapPlaceFields = 2;

class PlainSpmm {
 public:
  PlainSpmm(VectorIr& v, const Spmm& problem, const Config& config, LayoutIr& layout)
      : v_(v), ir_(v.ir), p_(v, problem), problem_(problem), layout_(layout), tile_n_(config.tile_n) {
    if (const auto cell = cell_of(problem)) cell_.emplace(v, *cell);
    lanes_ = std::min(p_.most_lanes(), tile_n_);
    vectors_ = std::min(kMostVectors, tile_n_ / lanes_);
  }

  void emit(const std::string& name) {
    v_.begin_pass(name);
    sums_ = p_.stack(problem_.weights() * block_sums(), "sums");
    x_block_ = p_.stack(std::int64_t{problem_.block.in} * tile_n_, "x_block");
    p_.clear(x_block_, std::int64_t{problem_.block.in} * tile_n_);  // batch rows that are not there
    locate();
    Value* first = v_.entry(worker_begin_, v_.worker, "items.begin");
    Value* end = v_.entry(worker_begin_, v_.plus(v_.worker, v_.constant(1)), "items.end");
    v_.loop("item", first, end, [&](Value* number) { item(v_.times(number, kPlainItemFields)); });
    v_.end_pass();
  }

 private:
  using Value = llvm::Value;
  using Values = VectorIr::Values;

  /// An activation, [batch rows, features] or feature-major.
  struct Matrix {
    Value* base = nullptr;
    Value* stride = nullptr;
  };

  [[nodiscard]] std::int64_t block_sums() const { return std::int64_t{problem_.block.out} * tile_n_; }
  [[nodiscard]] Value* pointer(std::size_t offset, const char* name) {
    return v_.argument(ir_.getPtrTy(), offset, name);
  }
  [[nodiscard]] Matrix matrix(std::size_t base, std::size_t stride, const char* name) {
    return {pointer(base, name), v_.argument(ir_.getInt64Ty(), stride, "stride")};
  }
  /// Where an element lies.
  [[nodiscard]] Value* place(const Matrix& matrix, Value* batch_row, Value* feature) {
    Value* major = problem_.feature_major() ? feature : batch_row;
    Value* minor = problem_.feature_major() ? batch_row : feature;
    return v_.plus(ir_.CreateMul(major, matrix.stride), minor);
  }

  void locate() {
    worker_begin_ = layout_.table(kWorkerBegin);
    items_ = layout_.table(kItems);
    columns_ = layout_.table(kColumns);
    blocks_ = layout_.table(kBlocks);
    if (problem_.correlation) tap_places_ = layout_.table(kTapPlaces);
    x_ = matrix(offsetof(LaunchOperands, x), offsetof(LaunchOperands, x_stride), "x");
    y_ = matrix(offsetof(LaunchOperands, y), offsetof(LaunchOperands, y_stride), "y");
    weights_ = locate_weights(v_, problem_.weights());
    if (cell_) cell_->begin();
    for (const OperandRow& row : operand_rows())
      if (row.form == OperandForm::dense && row.argument && row.taken(problem_))
        pointers_.emplace(row.name, pointer(row.place.address, row.name.data()));
    for (const OperandRow& row : operand_rows())
      if (row.form == OperandForm::activation && row.argument && row.argument != Argument::x &&
          !row.computed(problem_) && row.taken(problem_))
        matrices_.emplace(row.name, matrix(row.place.address, row.place.stride, row.name.data()));
    if (problem_.epilogue.scale) {
      alpha_ = p_.alpha();
      beta_ = p_.beta();
    }
    Value* tile = v_.batch_tile;
    Value* rows = nullptr;
    if (const Correlation* const lattice = problem_.correlation.get(); lattice != nullptr) {
      Value* tiles = v_.constant(lattice->tiles(tile_n_));
      image_ = ir_.CreateUDiv(tile, tiles);
      tile = ir_.CreateURem(tile, tiles);
      rows = ImageExtents(v_, *lattice).span();
    } else {
      rows = v_.argument(ir_.getInt64Ty(), offsetof(LaunchOperands, n), "n");
    }
    first_batch_row_ = v_.times(tile, tile_n_);
    batch_rows_ = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, ir_.CreateSub(rows, first_batch_row_),
                                            v_.constant(tile_n_));
  }

  /// Features of a block that exist: all but of the last one, where that is cut.
  [[nodiscard]] Value* existing(bool cut, Value* block, LayoutNumber last, LayoutNumber of_last,
                                std::int32_t whole) {
    if (!cut) return v_.constant(whole);
    return ir_.CreateSelect(ir_.CreateICmpEQ(block, layout_.number(last)), layout_.number(of_last),
                            v_.constant(whole));
  }

  void item(Value* fields) {
    const auto field = [&](std::int64_t index, const char* name) {
      return v_.entry(items_, v_.plus(fields, v_.constant(index)), name);
    };
    Value* row = field(0, "row");
    Value* first = field(1, "first_step");
    p_.clear(sums_, problem_.weights() * block_sums());
    v_.loop("step", first, v_.plus(first, field(2, "steps")), [&](Value* step) {
      Value* block = v_.entry(blocks_, step, "block");
      if (!problem_.block_scales) return add_block(step, block, nullptr);
      Value* number = layout_.has(kScaleOfStep)
                          ? v_.entry(layout_.table(kScaleOfStep), step, "scale_number")
                          : v_.quotient(block, std::max(1, problem_.block_scale_map.taps()));
      Value* block_scale = p_.load_sums(pointers_.at("block_scales"), number);
      v_.branch("block_scale", p_.is_not_zero(block_scale), [&] { add_block(step, block, block_scale); });
    });
    store_row(row);
  }

  /// Adds the products of a step's block.
  void add_block(Value* step, Value* block, Value* block_scale) {
    Value* column = v_.entry(columns_, step, "column");
    Value* point = nullptr;
    Value* phase = nullptr;
    if (problem_.correlation) {
      Value* place = v_.times(step, kTapPlaceFields);
      phase = v_.entry(tap_places_, place, "phase");
      point = v_.plus(v_.entry(tap_places_, v_.plus(place, v_.constant(1)), "point"), first_batch_row_);
    }
    Value* inputs = existing(problem_.cut_in % problem_.block.in != 0, column, LayoutNumber::last_column,
                             LayoutNumber::last_inputs, problem_.block.in);
    Value* feature = v_.times(column, problem_.block.in);
    v_.loop("x_batch_row", v_.constant(0), batch_rows_, [&](Value* batch_row) {
      if (phase == nullptr) return copy_x(v_.plus(first_batch_row_, batch_row), feature, inputs, batch_row);
      const RowOfPoint of =
          row_of_point(v_, {image_}, phase, v_.plus(point, batch_row), *problem_.correlation);
      v_.branch("inside", of.present, [&] { copy_x(of.row, feature, inputs, batch_row); });
      v_.branch("outside", ir_.CreateNot(of.present), [&] { clear_x(inputs, batch_row); });
    });
    Value* first = v_.times(block, std::int64_t{problem_.block.out} * problem_.block.in);
    for (std::size_t weight = 0; weight < weights_.size(); ++weight)
      multiply(weights_[weight], first, block_scale, inputs,
               static_cast<std::int64_t>(weight) * block_sums());
  }

  /// `inputs` features of a row of x from `first` on, as they are multiplied, [feature][batch row].
  void copy_x(Value* row, Value* first, Value* inputs, Value* batch_row) {
    v_.loop("x_feature", v_.constant(0), inputs, [&](Value* k) {
      Value* feature = v_.plus(first, k);
      Value* value = p_.load_operand(x_.base, place(x_, row, feature));
      if (problem_.derivative != Activation::none) {
        const Matrix& of_z = matrices_.at("z");
        Value* z = p_.load_operand(of_z.base, place(of_z, row, feature));
        value = p_.as_operand(ir_.CreateFMul(value, derivative(v_, problem_.derivative, z)));
      }
      p_.store_sums(value, x_block_, v_.plus(v_.times(k, tile_n_), batch_row));
    });
  }
  /// The same where there is no such row.
  void clear_x(Value* inputs, Value* batch_row) {
    v_.loop("no_feature", v_.constant(0), inputs, [&](Value* k) {
      p_.store_sums(p_.zeros(1), x_block_, v_.plus(v_.times(k, tile_n_), batch_row));
    });
  }

  /// One element of a weight's block, as it is multiplied.
  [[nodiscard]] Value* weight_at(Value* w, Value* first, Value* output, Value* k, Value* block_scale) {
    const auto [out, in] = problem_.block;
    Value* within =
        problem_.by_columns() ? v_.plus(v_.times(k, out), output) : v_.plus(v_.times(output, in), k);
    Value* value = p_.load_operand(w, v_.plus(first, within));
    return block_scale == nullptr ? value : p_.as_operand(ir_.CreateFMul(value, block_scale));
  }

  /// Adds x_block · Bᵀ to the sums from number `base` on: outputs × vectors of batch rows at a time.
  void multiply(Value* w, Value* first, Value* block_scale, Value* inputs, std::int64_t base) {
    const std::int32_t outputs = kMostSums / vectors_;
    const std::int32_t batch_rows = vectors_ * lanes_;
    v_.loop("outputs", v_.constant(0), v_.constant(problem_.block.out / outputs), [&](Value* output_tile) {
      v_.loop("batch_rows", v_.constant(0), v_.constant(tile_n_ / batch_rows), [&](Value* batch_row_tile) {
        Value* output = v_.times(output_tile, outputs);
        Value* batch_row = v_.times(batch_row_tile, batch_rows);
        const auto index = [&](std::int32_t o, std::int32_t vector) {
          Value* row = v_.plus(v_.times(v_.plus(output, v_.constant(o)), tile_n_), batch_row);
          return v_.plus(row, v_.constant(base + std::int64_t{vector} * lanes_));
        };
        Values sums;
        for (std::int32_t o = 0; o < outputs; ++o)
          for (std::int32_t vector = 0; vector < vectors_; ++vector)
            sums.push_back(p_.load_sums(sums_, index(o, vector), lanes_));
        sums = v_.loop("k", v_.constant(0), inputs, sums, [&](Value* k, const Values& now) {
          Values x;
          for (std::int32_t vector = 0; vector < vectors_; ++vector)
            x.push_back(p_.load_sums(
                x_block_,
                v_.plus(v_.plus(v_.times(k, tile_n_), batch_row), v_.constant(std::int64_t{vector} * lanes_)),
                lanes_));
          Values next;
          for (std::int32_t o = 0; o < outputs; ++o) {
            Value* weight =
                p_.broadcast(weight_at(w, first, v_.plus(output, v_.constant(o)), k, block_scale), lanes_);
            for (std::int32_t vector = 0; vector < vectors_; ++vector)
              next.push_back(v_.multiply_add(x[static_cast<std::size_t>(vector)], weight, now[next.size()]));
          }
          return next;
        });
        std::size_t i = 0;
        for (std::int32_t o = 0; o < outputs; ++o)
          for (std::int32_t vector = 0; vector < vectors_; ++vector)
            p_.store_sums(sums[i++], sums_, index(o, vector));
      });
    });
  }

  void store_row(Value* row) {
    if (problem_.correlation) return store_points(row);
    Value* outputs = existing(problem_.cut_out % problem_.block.out != 0, row, LayoutNumber::last_row,
                              LayoutNumber::last_outputs, problem_.block.out);
    v_.loop("output", v_.constant(0), outputs, [&](Value* output) {
      Value* feature = v_.plus(v_.times(row, problem_.block.out), output);
      v_.loop("batch_row", v_.constant(0), batch_rows_, [&](Value* batch_row) {
        store_output(v_.plus(v_.times(output, tile_n_), batch_row), v_.plus(first_batch_row_, batch_row),
                     feature);
      });
    });
  }

  /// The points of a class that are y's.
  void store_points(Value* row_of_layout) {
    const Correlation& lattice = *problem_.correlation;
    Value* out_blocks = layout_.number(LayoutNumber::out_blocks);
    Value* row = ir_.CreateURem(row_of_layout, out_blocks);
    const auto residues = residues_of(v_, ir_.CreateUDiv(row_of_layout, out_blocks), lattice);
    Value* outputs = existing(problem_.cut_out % problem_.block.out != 0, row, LayoutNumber::last_row,
                              LayoutNumber::last_outputs, problem_.block.out);
    v_.loop("point", v_.constant(0), batch_rows_, [&](Value* point) {
      const RowOfPoint of = row_of_y(v_, {image_}, residues, v_.plus(first_batch_row_, point), lattice);
      v_.branch("exists", of.present, [&] {
        v_.loop("output", v_.constant(0), outputs, [&](Value* output) {
          store_output(v_.plus(v_.times(output, tile_n_), point), of.row,
                       v_.plus(v_.times(row, problem_.block.out), output));
        });
      });
    });
  }

  /// One output's element of what an epilogue takes.
  [[nodiscard]] Value* operand(const OperandRow& row, Value* batch_row, Value* feature) {
    if (row.form == OperandForm::activation) {
      const Matrix& matrix = matrices_.at(row.name);
      return p_.load_element(type_of(row.type, problem_), matrix.base, place(matrix, batch_row, feature));
    }
    const bool by_rows = row.per == Per::block_row;
    return p_.load_element(type_of(row.type, problem_), pointers_.at(row.name),
                           by_rows ? v_.quotient(feature, problem_.block.out) : feature);
  }

  /// The cell of an LSTM; its four sums are those of the weights.
  void store_cell(Value* sum, Value* batch_row, Value* feature) {
    const CellIr::Access access{
        [&](DType type, Value* address) { return p_.load_element(type, address, v_.constant(0)); },
        [&](DType type, Value* value, Value* address) {
          v_.store(v_.rounded_to(type, value), address, static_cast<unsigned>(size_of(type)));
        }};
    Value* major = problem_.feature_major() ? feature : batch_row;
    Value* minor = problem_.feature_major() ? batch_row : feature;
    const auto size = static_cast<std::int64_t>(size_of(problem_.out_dtype));
    Value* y = v_.at(y_.base, v_.times(place(y_, batch_row, feature), size));
    const auto sum_of = [&](std::int64_t weight) {
      return p_.load_sums(sums_, v_.plus(sum, v_.constant(weight * block_sums())));
    };
    if (problem_.weights() > 1)
      return cell_->forward({sum_of(0), sum_of(1), sum_of(2), sum_of(3)}, major, minor, y, access);
    Value* dh = sum_of(0);
    if (problem_.epilogue.residual)
      dh = ir_.CreateFAdd(dh, operand(operand_row("residual"), batch_row, feature));
    cell_->backward(dh, major, minor, y, y_.stride, access);
  }

  void store_output(Value* sum, Value* batch_row, Value* feature) {
    if (cell_) return store_cell(sum, batch_row, feature);
    Value* y = nullptr;
    const auto at_y = [&] {
      if (y == nullptr) y = place(y_, batch_row, feature);
      return y;
    };
    Value* result =
        finished(v_, problem_.epilogue,
                 {.sum =
                      [&](std::int64_t weight) {
                        Value* at = weight == 0 ? sum : v_.plus(sum, v_.constant(weight * block_sums()));
                        return p_.as_computed(p_.load_sums(sums_, at));
                      },
                  .operand = [&](const OperandRow& row) { return operand(row, batch_row, feature); },
                  .alpha = [&] { return alpha_; },
                  .beta = [&] { return beta_; },
                  .reads_y =
                      [&] {
                        at_y();
                        return p_.is_not_zero(beta_);
                      },
                  .y = [&] { return p_.load_output(y_.base, at_y()); }});
    at_y();
    p_.store_output(result, y_.base, y);
  }

  VectorIr& v_;
  llvm::IRBuilder<>& ir_;
  PlainIr p_;
  const Spmm& problem_;
  LayoutIr& layout_;
  std::int32_t tile_n_;
  std::int32_t lanes_ = 1;    ///< batch rows of a vector
  std::int32_t vectors_ = 1;  ///< of batch rows, in registers
  Value* worker_begin_ = nullptr;
  Value* items_ = nullptr;
  Value* columns_ = nullptr;
  Value* blocks_ = nullptr;
  Value* tap_places_ = nullptr;  ///< null: a linear layer
  Value* sums_ = nullptr;        ///< [weight][output][batch row]
  Value* x_block_ = nullptr;     ///< [feature][batch row]
  Matrix x_;
  Matrix y_;
  std::map<std::string_view, Matrix> matrices_;  ///< activations besides x and y, by their names
  Values weights_;
  std::map<std::string_view, Value*> pointers_;  ///< of dense operands, by their names
  std::optional<CellIr> cell_;
  Value* alpha_ = nullptr;
  Value* beta_ = nullptr;
  Value* image_ = nullptr;            ///< of a convolution's tile
  Value* first_batch_row_ = nullptr;  ///< or point, of a convolution
  Value* batch_rows_ = nullptr;       ///< of this batch tile that exist
};

}  // namespace

void validate_plain(const Spmm& problem, const Config& config) {
  const bool power = std::has_single_bit(static_cast<std::uint32_t>(std::max(config.tile_n, 0)));
  if (power && config.tile_n <= kMostBatchRows && config.tile_out == 0 && !config.packed &&
      config.rows == 1 && config.merge == 1)
    return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("config '{}' for {}: tile_n is a power of two up to {}; tile_out=0 packed=0 rows=1 "
                          "merge=1 would work",
                          to_string(config), name(problem.dtype), kMostBatchRows));
}

void emit_plain_spmm(VectorIr& ir, const std::string& name, const Spmm& problem, const Config& config,
                     LayoutIr& layout) {
  PlainSpmm(ir, problem, config, layout).emit(name);
}

LayoutData plain_spmm_data(const Spmm& problem, const Schedule& schedule) {
  LayoutData data;
  std::vector<std::int32_t>& items = data.tables[kItems];
  std::vector<std::int32_t>& columns = data.tables[kColumns];
  const auto count = [](auto of) { return static_cast<std::int32_t>(of); };
  const std::int32_t taps = problem.correlation ? problem.correlation->kernel_taps : 1;
  for (std::int32_t worker = 0; worker < schedule.workers(); ++worker) {
    data.tables[kWorkerBegin].push_back(count(items.size()) / kPlainItemFields);
    for (const Item& item : schedule.items_of(worker)) {
      if (item.part != 0) continue;
      const auto row = problem.layout.row(item.tile);
      items.insert(items.end(), {item.tile, count(columns.size()), count(row.size())});
      for (const std::int32_t column : row) {
        columns.push_back(column / taps);
        if (!problem.correlation) continue;
        const Correlation::Tap& tap = tap_of(problem, item.tile, column);
        // Points fit into 32 bits: validate(const Convolution&) sees to it.
        data.tables[kTapPlaces].insert(data.tables[kTapPlaces].end(),
                                       {tap.phase, count(tap.displacement - problem.correlation->least)});
      }
      std::int32_t number = problem.layout.crow()[static_cast<std::size_t>(item.tile)];
      for (std::size_t i = 0; i < row.size(); ++i)
        data.tables[kBlocks].push_back(problem.block_of_weight(number++));
    }
  }
  data.tables[kWorkerBegin].push_back(count(items.size()) / kPlainItemFields);
  if (problem.block_scale_map.taps() == 0)
    for (const std::int32_t block : data.tables[kBlocks])
      data.tables[kScaleOfStep].push_back(problem.block_scale_map.of(block));
  // An empty layout's tables are not read; a baked one has an address all the same.
  for (std::vector<std::int32_t>* table : {&items, &columns, &data.tables[kBlocks], &data.tables[kTapPlaces]})
    if (table->empty()) table->push_back(0);
  data[LayoutNumber::workers] = schedule.workers();
  data[LayoutNumber::out_blocks] = problem.out_blocks();
  set_features(data, problem);
  return data;
}

}  // namespace sparsekiln::cpu
