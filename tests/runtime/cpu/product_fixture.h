#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/binary.h>

#include "compiler/cpu/emit.h"
#include "compiler/cpu/object.h"
#include "compiler/cpu_levels.h"
#include "compiler/element.h"
#include "runtime/cpu/device.h"
#include "tests/runtime/cpu/remembered_object.h"

namespace sparsekiln::cpu {

/// A grid written as text: rows separated by '/', 1 for a present block.
inline Layout grid(const std::string& text) {
  std::vector<std::int32_t> crow{0};
  std::vector<std::int32_t> col;
  std::int32_t cols = 0;
  std::int32_t at = 0;
  for (const char c : text + "/") {
    if (c == '/') {
      crow.push_back(static_cast<std::int32_t>(col.size()));
      cols = std::max(cols, std::exchange(at, 0));
      continue;
    }
    if (c == '1') col.push_back(at);
    ++at;
  }
  return Layout::from_csr(static_cast<std::int64_t>(crow.size()) - 1, cols, crow, col);
}

/// The levels that this host runs.
inline std::vector<std::string> runnable_levels() {
  std::vector<std::string> levels;
  const std::string host = host_level();
  for (const Level& level : cpu::levels())
    if (runs(host, level.name)) levels.emplace_back(level.name);
  return levels;
}

inline Config vector_config(std::int32_t tile_n, std::int32_t split = 1) {
  Config config;
  config.variant = Variant::vector;
  config.tile_n = tile_n;
  config.warps = 1;
  config.split = split;
  return config;
}

inline Problem product_of(Layout layout, BlockShape block, std::int64_t n, DType dtype = DType::f32,
                          DType out_dtype = DType::f32, Operation operation = Operation::forward) {
  Problem problem;
  problem.operation = operation;
  problem.layout = std::move(layout);
  problem.block = block;
  problem.batch = Batch::up_to(n);
  problem.dtype = dtype;
  problem.out_dtype = out_dtype;
  return problem;
}

/// `assembled`: the level that LLVM compiles the module for. A lower one than the emitter's splits its
/// vectors.
inline std::shared_ptr<const Binary> build_for(const Problem& problem, const Target& target,
                                               const Config& config, const Target& assembled) {
  const Plan plan = {{problem.batch.bound(), config}};
  validate(problem, target, config);
  const Source source =
      emit(problem, target, plan, {make_schedule(problem, target, config, problem.batch.bound())});
  auto binary = std::make_shared<Binary>();
  binary->target = assembled;
  binary->plan = plan;
  binary->entries = source.entries;
  binary->code = remembered_object(source.text, assembled);
  return binary;
}
inline std::shared_ptr<const Binary> build_for(const Problem& problem, const Target& target,
                                               const Config& config) {
  return build_for(problem, target, config, target);
}

/// Values of one type in 16-byte aligned memory, read and written as float.
class Values {
 public:
  Values(DType dtype, std::size_t size)
      : dtype_(dtype), size_(size), memory_(size * size_of(dtype) / 4 + 8) {}
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::byte* data() {  // 16-byte aligned, never 32
    auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    address = (address + 15) / 16 * 16;
    if (address % 32 == 0 && (memory_.size() - size_ * size_of(dtype_) / 4) >= 8) address += 16;
    return reinterpret_cast<std::byte*>(address);
  }
  void set(std::size_t i, float value) { store(dtype_, value, data(), static_cast<std::int64_t>(i)); }
  [[nodiscard]] float get(std::size_t i) { return to_float(dtype_, data(), static_cast<std::int64_t>(i)); }
  [[nodiscard]] std::vector<float> all() {
    std::vector<float> values(size_);
    to_float(dtype_, data(), 0, values);
    return values;
  }

 private:
  DType dtype_;
  std::size_t size_;
  std::vector<std::uint32_t> memory_;
};

/// Operands of one launch. Rows of x and y lie `kGap` elements apart; gaps hold a poison that must not be
/// read or overwritten.
struct Operands {
  static constexpr std::int64_t kGap = 8;
  static constexpr float kPoison = -12288.0F;  // exact in bf16 and f16

  Operands(const Spmm& problem, std::int64_t batch, std::uint32_t seed)
      : n(batch),
        x_stride(problem.in_features() + kGap),
        y_stride(problem.out_features() + kGap),
        x(problem.dtype, static_cast<std::size_t>(n * x_stride)),
        w(problem.dtype,
          static_cast<std::size_t>(problem.layout.blocks() * problem.block.out * problem.block.in)),
        y(problem.out_dtype, static_cast<std::size_t>(n * y_stride)) {
    std::minstd_rand random(seed);
    const auto small = [&] { return static_cast<float>(static_cast<int>(random() % 5) - 2); };
    for (std::size_t i = 0; i < x.size(); ++i)
      x.set(i, static_cast<std::int64_t>(i) % x_stride < problem.in_features()
                   ? small()
                   : std::numeric_limits<float>::quiet_NaN());
    for (std::size_t i = 0; i < w.size(); ++i) w.set(i, small());
    for (std::size_t i = 0; i < y.size(); ++i) y.set(i, kPoison);
  }

  std::int64_t n;
  std::int64_t x_stride;
  std::int64_t y_stride;
  Values x;
  Values w;
  Values y;

  [[nodiscard]] Launch launch(void* workspace) {
    return {x.data(), w.data(), y.data(), workspace, n, x_stride, y_stride};
  }
};

inline void run(const Module& module, const Binary& binary, Operands& operands) {
  module.launch(0, operands.launch(module.workspace(nullptr, binary.entries[0].workspace_bytes(operands.n))));
}

/// y = x · Bᵀ by the definition, in double, with B = W or, for the gradient of the input, Wᵀ.
inline std::vector<double> reference(const Problem& problem, Operands& operands) {
  const auto [out, in] = problem.block;
  const bool transposed = problem.operation == Operation::grad_input;
  const std::int64_t width = Spmm(problem).out_features();
  const std::vector<float> w = operands.w.all();
  const std::vector<float> x = operands.x.all();
  std::vector<double> y(static_cast<std::size_t>(operands.n * width), 0.0);
  for (std::int64_t batch_row = 0; batch_row < operands.n; ++batch_row)
    for (std::int32_t row = 0; row < problem.layout.rows(); ++row)
      for (std::int32_t b = problem.layout.crow()[static_cast<std::size_t>(row)];
           b < problem.layout.crow()[static_cast<std::size_t>(row) + 1]; ++b)
        for (std::int32_t o = 0; o < out; ++o)
          for (std::int32_t k = 0; k < in; ++k) {
            std::int64_t to = std::int64_t{row} * out + o;
            std::int64_t from = std::int64_t{problem.layout.col()[static_cast<std::size_t>(b)]} * in + k;
            if (transposed) std::swap(to, from);
            y[static_cast<std::size_t>(batch_row * width + to)] +=
                double{w[(static_cast<std::size_t>(b) * out + o) * in + k]} *
                double{x[static_cast<std::size_t>(batch_row * operands.x_stride + from)]};
          }
  return y;
}

/// Elements of y, gaps included, that are not what they must be bit for bit.
inline std::int64_t wrong_elements(const Problem& problem, Operands& operands) {
  const std::vector<double> expected = reference(problem, operands);
  const std::int64_t width = Spmm(problem).out_features();
  std::int64_t wrong = 0;
  for (std::int64_t batch_row = 0; batch_row < operands.n; ++batch_row)
    for (std::int64_t column = 0; column < operands.y_stride; ++column) {
      const float got = operands.y.get(static_cast<std::size_t>(batch_row * operands.y_stride + column));
      const double want = column < width ? expected[static_cast<std::size_t>(batch_row * width + column)]
                                         : double{Operands::kPoison};
      if (std::isnan(want) ? !std::isnan(got) : double{got} != want) ++wrong;
    }
  return wrong;
}

}  // namespace sparsekiln::cpu
