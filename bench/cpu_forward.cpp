// Forward on this machine's processors compared with oneDNN's dense matmul, and with what the machine can do:
// the peak of its multiply-adders and, for n = 1, how fast it reads as many bytes as the weight has.
//
// Layers of 4096 × 4096 in f32, random blocks. Every iteration of a benchmark is one round of all
// contestants, one after the other on the same threads, so that a busy machine affects them alike. The
// counters are medians over the rounds of what was measured, or of ratios within a round:
//  of_peak, packed_of_peak       ours over the FMA peak; FLOPs of present blocks only
//  packed_gain                   time with the unpacked weight over that with the packed one
//  vs_onednn, vs_prepacked       time of oneDNN over ours packed: with the weight as plain [out, in] memory,
//                                and in the order that oneDNN prefers (reordered before the clock starts)
//  of_bandwidth, packed_…        (n = 1) present bytes of the weight a second, over those of a reading loop
//  pack_ms                       packing the weight, once, outside of the clock
// Packing x and writing y are inside it.
//
//  --short         measures only small layers, for tests (bench/command_line.h)
//  --config=TEXT   measures another config (its `packed` is ignored)
//  --target=TEXT   of a level that this machine runs, such as x86-64-v3:2 (cpu)
//  --clock=cpu     processor time of the process over its threads, instead of wall-clock time: for machines
//                  with other work to do. All contestants keep their threads spinning while they wait, so
//                  that idle threads count.

#include <algorithm>
#include <functional>
#include <memory>
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
#include "runtime/cpu/machine_peak.h"

namespace sparsekiln {
namespace {

using bench::Contestant;
using bench::kStretch;
using bench::Rounds;

/// The values that are measured, along each axis of the cases.
struct Axes {
  std::int64_t features = 4096;
  std::vector<std::int32_t> blocks{8, 16, 32, 64};
  std::vector<double> densities{0.05, 0.1, 0.25, 0.5, 1.0};
  std::vector<std::int64_t> batches{1, 32, 64, 256, 512};
  int rounds = 11;
};
const Axes kShort{256, {8, 32}, {0.25}, {1, 64}, 2};

std::vector<float> noise(std::size_t size) {
  std::vector<float> values(size);
  std::minstd_rand random(1);
  for (float& value : values) value = static_cast<float>(random() % 2048 + 1) / 4096.0F;
  return values;
}

/// oneDNN's matmul primitive on the dense layer.
class Dense {
 public:
  /// `prepacked`: in the order that the primitive asks for when it may choose.
  Dense(std::int64_t n, std::int64_t features, const std::vector<float>& x, const std::vector<float>& w,
        std::vector<float>& y, bool prepacked)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using Type = dnnl::memory::data_type;
    using Tag = dnnl::memory::format_tag;
    const dnnl::memory::desc source({n, features}, Type::f32, Tag::ab);
    const dnnl::memory::desc plain({features, features}, Type::f32, Tag::ba);  // W[out, in], unpacked
    const dnnl::memory::desc any({features, features}, Type::f32, Tag::any);
    const dnnl::memory::desc result({n, features}, Type::f32, Tag::ab);
    const dnnl::matmul::primitive_desc form(dnnl::matmul::desc(source, prepacked ? any : plain, result),
                                            engine_);
    matmul_ = dnnl::matmul(form);
    const auto memory = [&](const dnnl::memory::desc& description, const float* data) {
      return dnnl::memory(description, engine_, const_cast<float*>(data));
    };
    dnnl::memory weight = memory(plain, w.data());
    if (prepacked) {
      dnnl::memory reordered(form.weights_desc(), engine_);
      dnnl::reorder(weight, reordered).execute(stream_, weight, reordered);
      stream_.wait();
      weight = reordered;
    }
    operands_ = {{DNNL_ARG_SRC, memory(source, x.data())},
                 {DNNL_ARG_WEIGHTS, weight},
                 {DNNL_ARG_DST, memory(result, y.data())}};
  }

  void run() {
    matmul_.execute(stream_, operands_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> operands_;
};

/// Our kernel, through the public interface; with `packed`, on a weight that was packed before.
class Sparse {
 public:
  Sparse(const Layout& layout, std::int64_t n, const Options& options, const std::vector<float>& weight)
      : n_(n),
        features_(layout.cols() * options.block.in),
        shape_(options.block),
        blocks_(layout.blocks()),
        kernel_(compile(layout, options)),
        weight_(weight.begin(), weight.begin() + blocks_ * shape_.out * shape_.in) {
    bench::check_kernel(layout, options, kernel_);
    if (kernel_.packed_elements() == 0) return;
    std::vector<float> packed(static_cast<std::size_t>(kernel_.packed_elements()));
    pack_seconds_ = bench::wall_seconds_of([&] { kernel_.pack(blocks(weight_.data()), packed.data()); });
    weight_ = std::move(packed);
  }

  void run(const std::vector<float>& x, std::vector<float>& y) const {
    kernel_({.x = view(x.data(), DType::f32, n_, features_),
             .w = blocks(weight_.data()),
             .y = view(y.data(), DType::f32, n_, features_)});
  }
  [[nodiscard]] const Kernel& kernel() const { return kernel_; }
  [[nodiscard]] double pack_seconds() const { return pack_seconds_; }

 private:
  [[nodiscard]] TensorView blocks(const float* data) const {
    return view(data, DType::f32, blocks_, shape_.out, shape_.in);
  }

  std::int64_t n_;
  std::int64_t features_;
  BlockShape shape_;
  std::int64_t blocks_;
  Kernel kernel_;
  std::vector<float> weight_;
  double pack_seconds_ = 0;
};

struct Case {
  std::int64_t features;
  std::int32_t block;
  double density;
  std::int64_t n;
  Target target;
};

void forward(benchmark::State& state, const Case& given, const std::optional<Config>& config) {
  const std::int64_t grid = given.features / given.block;
  const Layout layout = patterns::random(grid, grid, given.density, 1);
  const Target& target = given.target;
  Options options{
      .block = {given.block, given.block}, .batch = given.n, .target = target.to_string(), .config = config};
  static const std::vector<float> weight = noise(static_cast<std::size_t>(given.features * given.features));
  if (options.config) options.config->packed = false;
  const Sparse as_it_lies(layout, given.n, options, weight);
  if (!options.config) options.config = as_it_lies.kernel().binary().plan.front().config;
  options.config->packed = true;
  const Sparse packed(layout, given.n, options, weight);
  const std::vector<float> x = noise(static_cast<std::size_t>(given.n * given.features));
  std::vector<float> y(x.size());

  omp_set_num_threads(target.workers);
  Dense plain(given.n, given.features, x, weight, y, false);
  Dense prepacked(given.n, given.features, x, weight, y, true);
  const cpu::FmaPeak peak(target);
  const std::int64_t turns = cpu::FmaPeak::turns(kStretch);
  const double weight_bytes = 4.0 * static_cast<double>(layout.blocks()) * given.block * given.block;
  const cpu::ReadBandwidth reader(target, static_cast<std::int64_t>(weight_bytes));
  const Contestant run_as_it_lies([&] { as_it_lies.run(x, y); });
  const Contestant run_packed([&] { packed.run(x, y); });
  const Contestant run_plain([&] { plain.run(); });
  const Contestant run_prepacked([&] { prepacked.run(); });
  const Contestant read([&] { reader.run(); });

  const double flops = weight_bytes / 2 * static_cast<double>(given.n);
  Rounds rounds;
  for ([[maybe_unused]] const auto round : state) {
    bench::settle();
    peak.run(turns / 8);  // wakes the threads up
    const double peak_rate = peak.flops(turns) / bench::seconds_of([&] { peak.run(turns); });
    const double lying_seconds = run_as_it_lies.measure();
    const double packed_seconds = run_packed.measure();
    const double read_seconds = given.n == 1 ? read.measure() : 1;
    const double plain_seconds = run_plain.measure();
    const double prepacked_seconds = run_prepacked.measure();
    rounds.add("peak_GFLOPs", peak_rate / 1e9);
    rounds.add("GFLOPs", flops / packed_seconds / 1e9);
    rounds.add("of_peak", flops / lying_seconds / peak_rate);
    rounds.add("packed_of_peak", flops / packed_seconds / peak_rate);
    rounds.add("packed_gain", lying_seconds / packed_seconds);
    rounds.add("vs_onednn", plain_seconds / packed_seconds);
    rounds.add("vs_prepacked", prepacked_seconds / packed_seconds);
    if (given.n == 1) {
      const double read_rate = static_cast<double>(reader.bytes()) / read_seconds;
      rounds.add("read_GBs", read_rate / 1e9);
      rounds.add("of_bandwidth", weight_bytes / lying_seconds / read_rate);
      rounds.add("packed_of_bandwidth", weight_bytes / packed_seconds / read_rate);
    }
    state.SetIterationTime(packed_seconds);
  }
  rounds.report(state);
  state.counters["pack_ms"] = 1e3 * packed.pack_seconds();
  state.SetLabel(to_string(packed.kernel().binary().plan));
}

}  // namespace
}  // namespace sparsekiln

int main(int argc, char** argv) {
  using namespace sparsekiln;
  return bench::run_benchmarks(argc, argv, [](bench::CommandLine& line, bool is_short) {
    std::optional<Config> config;
    if (const auto text = line.take("--config")) config = parse_config(*text);
    const Target target = Target::parse(line.take("--target").value_or("cpu"));
    bench::choose_clock(line.take("--clock"), target.workers);
    const Axes axes = is_short ? kShort : Axes{};
    for (const std::int32_t block : axes.blocks)
      for (const double density : axes.densities)
        for (const std::int64_t n : axes.batches)
          benchmark::RegisterBenchmark(
              fmt::format("forward/block:{}/density:{}/n:{}/threads:{}", block, density, n, target.workers)
                  .c_str(),
              [=](benchmark::State& state) {
                forward(state, {axes.features, block, density, n, target}, config);
              })
              ->UseManualTime()
              ->Unit(benchmark::kMillisecond)
              ->Iterations(axes.rounds);
  });
}
