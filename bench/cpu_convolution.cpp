// Convolutions with block-sparse features on this machine's processors: the 3×3 layers of ResNet-50, of
// stride 1 and 2, in float32, a batch of 8 images, compared with a linear layer of as dense blocks and with
// oneDNN's dense convolution of the same shape.
//
// Every iteration of a benchmark is one round of all contestants, one after the other on the same threads.
// The counters are medians over the rounds:
//  GFLOPs                  ours, of present blocks and all taps and positions, padding included
//  forward_vs_linear, grad_input_vs_linear, grad_weight_vs_linear
//                          our rate over that of the same operation of a linear layer of 4096 × 4096 and a
//                          batch of 256
//  vs_onednn               oneDNN's time over ours, forward, in the memory formats that oneDNN asks for
//  vs_channels_last        the same on channels-last activations, its weight prepacked
//
//  --short         measures only small layers, for tests (bench/command_line.h)
//  --target=TEXT   of the cpu target (cpu); oneDNN takes what the machine has
//  --threads=N     by default all that the process may use
//  --write FILE    writes the table of that document

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <omp.h>
#include <sparsekiln/sparsekiln.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "bench/check_kernel.h"
#include "bench/command_line.h"
#include "bench/contest.h"
#include "bench/document.h"
#include "runtime/cpu/device.h"

namespace sparsekiln {
namespace {

using bench::Contestant;
using bench::Rounds;

/// As many input as output features, over square images.
struct Layer {
  std::int64_t features;
  std::int32_t side;
  std::int32_t stride = 1;
};

/// The values that are measured, along each axis of the cases.
struct Axes {
  std::vector<Layer> layers{{64, 56},     {128, 28},    {256, 14},   {512, 7},
                            {128, 56, 2}, {256, 28, 2}, {512, 14, 2}};
  std::vector<std::int32_t> blocks{16, 32};
  std::vector<double> densities{0.1, 0.25, 0.5};
  std::int64_t images = 8;
  std::int64_t linear_features = 4096;
  std::int64_t linear_batch = 256;
  int rounds = 11;
};
const Axes kShort{{{64, 5}}, {16}, {0.5}, 2, 128, 32, 2};

struct Case {
  Layer layer;
  std::int32_t block;
  double density;
};

std::vector<float> noise(std::int64_t size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  std::minstd_rand random(1);
  for (float& value : values) value = static_cast<float>(random() % 2048 + 1) / 4096.0F;
  return values;
}

/// One operation of one of our kernels.
class Sparse {
 public:
  Sparse(const Layout& layout, const Options& options)
      : options_(options), kernel_(compile(layout, options)) {
    bench::check_kernel(layout, options, kernel_);
    const auto& contract = kernel_.binary().operands;
    x_rows_ = contract.input_rows(contract.batch.bound());
    y_rows_ = contract.output_rows(contract.batch.bound());
    blocks_ = contract.blocks;
    in_ = contract.in_features;
    out_ = contract.out_features;
    x_ = noise(x_rows_ * in_);
    y_ = noise(y_rows_ * out_);
    w_ = noise(blocks_ * options.block.out * options.block.in);
  }

  void run() {
    const TensorView x = view(x_.data(), DType::f32, x_rows_, in_);
    const TensorView y = view(y_.data(), DType::f32, y_rows_, out_);
    const TensorView w = view(w_.data(), DType::f32, blocks_, options_.block.out, options_.block.in);
    switch (options_.operation) {
      case Operation::forward:
        return kernel_({.x = x, .w = w, .y = y});
      case Operation::grad_input:
        return kernel_({.w = w, .dy = y, .dx = x});
      case Operation::grad_weight:
        return kernel_({.x = x, .dy = y, .dw = w});
    }
  }
  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(blocks_) * options_.block.out * options_.block.in *
           static_cast<double>(y_rows_);
  }

 private:
  Options options_;
  Kernel kernel_;
  std::int64_t x_rows_ = 0;
  std::int64_t y_rows_ = 0;
  std::int64_t blocks_ = 0;
  std::int64_t in_ = 0;
  std::int64_t out_ = 0;
  std::vector<float> x_;
  std::vector<float> y_;
  std::vector<float> w_;
};

/// oneDNN's dense convolution, 3×3 with a padding of 1.
class Dense {
 public:
  /// `activations`: their format. Nothing is reordered in a run.
  Dense(const Layer& layer, std::int64_t images, dnnl::memory::format_tag activations)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using Tag = dnnl::memory::format_tag;
    const auto type = dnnl::memory::data_type::f32;
    const auto images_of = [&](std::int32_t side) {
      return dnnl::memory::desc({images, layer.features, side, side}, type, activations);
    };
    const dnnl::memory::desc source = images_of(layer.side);
    const dnnl::memory::desc weight({layer.features, layer.features, 3, 3}, type, Tag::any);
    const dnnl::memory::desc result = images_of((layer.side - 1) / layer.stride + 1);
    const dnnl::convolution_forward::primitive_desc form(
        dnnl::convolution_forward::desc(dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_auto,
                                        source, weight, result, {layer.stride, layer.stride}, {1, 1}, {1, 1}),
        engine_);
    convolution_ = dnnl::convolution_forward(form);
    const auto filled = [&](const dnnl::memory::desc& description) {
      const dnnl::memory memory(description, engine_);
      auto* const values = static_cast<float*>(memory.get_data_handle());
      const std::vector<float> from = noise(static_cast<std::int64_t>(description.get_size() / 4));
      std::copy(from.begin(), from.end(), values);
      return memory;
    };
    operands_ = {{DNNL_ARG_SRC, filled(form.src_desc())},
                 {DNNL_ARG_WEIGHTS, filled(form.weights_desc())},
                 {DNNL_ARG_DST, filled(form.dst_desc())}};
  }
  void run() {
    convolution_.execute(stream_, operands_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::convolution_forward convolution_;
  std::unordered_map<int, dnnl::memory> operands_;
};

constexpr std::array kOperations = {Operation::forward, Operation::grad_input, Operation::grad_weight};

void convolution(benchmark::State& state, const Case& given, const Axes& axes, const Target& target) {
  const auto layout_of = [&](std::int64_t features) {
    const std::int64_t grid = features / given.block;
    const double one_block = 1.0 / static_cast<double>(grid * grid);
    return patterns::random(grid, grid, std::max(given.density, one_block), 1);
  };
  Options options{.block = {given.block, given.block}, .batch = axes.images, .target = target.to_string()};
  options.convolution = parse_convolution(fmt::format(
      "kernel=3x3 padding=1 stride={} input={}x{}", given.layer.stride, given.layer.side, given.layer.side));
  Options linear = options;
  linear.convolution = {};
  linear.batch = axes.linear_batch;
  std::vector<Sparse> ours;
  std::vector<Sparse> layers;
  for (const Operation operation : kOperations) {
    options.operation = linear.operation = operation;
    ours.emplace_back(layout_of(given.layer.features), options);
    layers.emplace_back(layout_of(axes.linear_features), linear);
  }
  omp_set_num_threads(target.workers);
  Dense own_formats(given.layer, axes.images, dnnl::memory::format_tag::any);
  Dense channels_last(given.layer, axes.images, dnnl::memory::format_tag::nhwc);
  std::vector<Contestant> run_ours;
  std::vector<Contestant> run_layers;
  for (Sparse& one : ours) run_ours.emplace_back([&one] { one.run(); });
  for (Sparse& one : layers) run_layers.emplace_back([&one] { one.run(); });
  const Contestant run_own_formats([&] { own_formats.run(); });
  const Contestant run_channels_last([&] { channels_last.run(); });

  Rounds rounds;
  for ([[maybe_unused]] const auto round : state) {
    bench::settle();
    double forward = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const double seconds = run_ours[i].measure();
      const double rate = ours[i].flops() / seconds;
      if (i == 0) forward = seconds;
      if (i == 0) rounds.add("GFLOPs", rate / 1e9);
      rounds.add(fmt::format("{}_vs_linear", name(kOperations[i])),
                 rate / (layers[i].flops() / run_layers[i].measure()));
    }
    rounds.add("vs_onednn", run_own_formats.measure() / forward);
    rounds.add("vs_channels_last", run_channels_last.measure() / forward);
    state.SetIterationTime(forward);
  }
  rounds.report(state);
}

std::string row_of(const benchmark::BenchmarkReporter::Run& run) {
  std::string row = "|";
  for (const char* const part : {"features", "side", "stride", "block", "density"})
    row += fmt::format(" {} |", bench::part_of_name(run, part));
  for (const char* const counter : {"forward_vs_linear", "grad_input_vs_linear", "grad_weight_vs_linear",
                                    "vs_onednn", "vs_channels_last"})
    row += fmt::format(" {:.2f} |", static_cast<double>(run.counters.at(counter)));
  return row + "\n";
}

constexpr const char* kHead =
    "| features | image side | stride | block | density | forward over linear | grad_input | grad_weight | "
    "oneDNN's "
    "time "
    "over ours | on channels-last |\n|---|---|---|---|---|---|---|---|---|---|\n";

}  // namespace
}  // namespace sparsekiln

int main(int argc, char** argv) {
  using namespace sparsekiln;
  std::optional<bench::Document> document;
  std::string rows;
  const int status = bench::run_benchmarks(
      argc, argv,
      [&](bench::CommandLine& line, bool is_short) {
        if (const auto path = line.take("--write")) document.emplace(*path, "cpu_convolution");
        Target target = Target::parse(line.take("--target").value_or("cpu"));
        if (const auto count = line.take("--threads")) target.workers = std::stoi(*count);
        bench::choose_clock(line.take("--clock"), target.workers);
        const Axes axes = is_short ? kShort : Axes{};
        for (const std::int32_t block : axes.blocks)
          for (const double density : axes.densities)
            for (const Layer& layer : axes.layers)
              benchmark::RegisterBenchmark(
                  fmt::format("convolution/features:{}/side:{}/stride:{}/block:{}/density:{}", layer.features,
                              layer.side, layer.stride, block, density)
                      .c_str(),
                  [=](benchmark::State& state) { convolution(state, {layer, block, density}, axes, target); })
                  ->UseManualTime()
                  ->Unit(benchmark::kMillisecond)
                  ->Iterations(axes.rounds);
      },
      [&](const benchmark::BenchmarkReporter::Run& run) { rows += row_of(run); });
  if (status == 0 && document) {
    const auto device = cpu::open_device(0);
    document->write(
        fmt::format("{}, {} threads:\n\n{}{}", device->about().name, device->target().workers, kHead, rows));
  }
  return status;
}
