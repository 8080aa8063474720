// Forward on this machine's processors against oneDNN's dense matmul and the peak of its multiply-adders.
//
// The layers of `./dev demo`: 12288 hidden units, blocks of 32, Watts–Strogatz. The weight lies as we hold
// it, row-major [out, in], and oneDNN gets it as plain memory with transposed strides. Every iteration of a
// benchmark is one round of all of them, one after the other on the same threads, so that a busy machine
// hurts them alike; the counters are medians over the rounds, but for the peak, which is the best. GFLOP/s of
// ours count products of present blocks only. packed_gain is the time with the weight as it lies over that
// with the weight packed before (Config::packed).

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <omp.h>
#include <sparsekiln/sparsekiln.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "compiler/cpu/level.h"
#include "compiler/cpu/object.h"
#include "runtime/cpu/loaded_object.h"
#include "runtime/cpu/thread_pool.h"

namespace sparsekiln {
namespace {

constexpr std::int64_t kHidden = 12288;
constexpr BlockShape kBlock = {32, 32};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// A pause in which the threads of the one before (OpenMP's spin on for a while) leave the processors.
void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

std::vector<float> noise(std::size_t size) {
  std::vector<float> values(size);
  std::minstd_rand random(1);
  for (float& value : values) value = static_cast<float>(random() % 2048 + 1) / 4096.0F;
  return values;
}

/// Independent chains of multiply-adds in registers: what the level's vector units can do at most.
class Peak {
 public:
  Peak(const Target& target, std::int32_t threads)
      : lanes_(cpu::level_of(target).lanes),
        threads_(threads),
        object_(cpu::compile_object(module(), target)) {
    cpu::ThreadPool::shared().reserve(threads);
    loop_ = reinterpret_cast<void (*)(std::int64_t, float*)>(object_.symbol("peak"));
  }

  /// FLOP/s of all threads together.
  [[nodiscard]] double measure() const {
    const double seconds =
        seconds_of([&] { cpu::ThreadPool::shared().run({job, this, 1, threads_, threads_}); });
    return 2.0 * kChains * lanes_ * static_cast<double>(kTurns) * threads_ / seconds;
  }

 private:
  static constexpr int kChains = 12;
  static constexpr std::int64_t kTurns = 16'000'000;  // tens of milliseconds: past waking up and speeding up

  [[nodiscard]] std::string module() const {
    const std::string type = fmt::format("<{} x float>", lanes_);
    std::string phis;
    std::string steps;
    std::string sum = fmt::format("  %s0 = fadd {} %n0, %n0\n", type);
    for (int i = 0; i < kChains; ++i) {
      phis += fmt::format("  %a{0} = phi {1} [ zeroinitializer, %entry ], [ %n{0}, %loop ]\n", i, type);
      steps += fmt::format("  %n{0} = call {1} @llvm.fmuladd.v{2}f32({1} %f, {1} %f, {1} %a{0})\n", i, type,
                           lanes_);
      sum += fmt::format("  %s{0} = fadd {1} %s{2}, %n{3}\n", i + 1, type, i, i);
    }
    return fmt::format(
        "declare {0} @llvm.fmuladd.v{1}f32({0}, {0}, {0})\n"
        "define void @peak(i64 %turns, ptr %out) \"prefer-vector-width\"=\"{6}\" "
        "\"min-legal-vector-width\"=\"{6}\" {{\n"
        "entry:\n  %f = load {0}, ptr %out, align 4\n  br label %loop\n"
        "loop:\n  %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n{2}{3}"
        "  %next = add i64 %i, 1\n  %more = icmp slt i64 %next, %turns\n  br i1 %more, label %loop, label "
        "%end\n"
        "end:\n{4}  store {0} %s{5}, ptr %out, align 4\n  ret void\n}}\n",
        type, lanes_, phis, steps, sum, kChains, lanes_ * 32);
  }

  static void job(const void* self, std::int32_t, std::int64_t) {
    float out[64] = {};
    static_cast<const Peak*>(self)->loop_(kTurns, out);
    benchmark::DoNotOptimize(out);
  }

  std::int32_t lanes_;
  std::int32_t threads_;
  cpu::LoadedObject object_;
  void (*loop_)(std::int64_t, float*) = nullptr;
};

/// oneDNN's matmul primitive on the dense layer.
class Dense {
 public:
  Dense(std::int64_t n, const std::vector<float>& x, const std::vector<float>& w, std::vector<float>& y)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using Type = dnnl::memory::data_type;
    const dnnl::memory::desc source({n, kHidden}, Type::f32, dnnl::memory::dims{kHidden, 1});
    const dnnl::memory::desc weight({kHidden, kHidden}, Type::f32, dnnl::memory::dims{1, kHidden});
    const dnnl::memory::desc result({n, kHidden}, Type::f32, dnnl::memory::dims{kHidden, 1});
    matmul_ = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(source, weight, result), engine_));
    const auto memory = [&](const dnnl::memory::desc& description, const float* data) {
      return dnnl::memory(description, engine_, const_cast<float*>(data));
    };
    operands_ = {{DNNL_ARG_SRC, memory(source, x.data())},
                 {DNNL_ARG_WEIGHTS, memory(weight, w.data())},
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

/// Our kernel, through the public face; with `packed`, on a weight that was packed before.
class Sparse {
 public:
  Sparse(const Layout& layout, std::int64_t n, const Options& options, const std::vector<float>& weight)
      : n_(n),
        blocks_(layout.blocks()),
        kernel_(compile(layout, options)),
        weight_(weight.begin(), weight.begin() + blocks_ * kBlock.out * kBlock.in) {
    if (kernel_.packed_elements() == 0) return;
    std::vector<float> packed(static_cast<std::size_t>(kernel_.packed_elements()));
    kernel_.pack(blocks(weight_.data()), packed.data());
    weight_ = std::move(packed);
  }

  void run(const std::vector<float>& x, std::vector<float>& y) const {
    kernel_({.x = view(x.data(), DType::f32, n_, kHidden),
             .w = blocks(weight_.data()),
             .y = view(y.data(), DType::f32, n_, kHidden)});
  }
  [[nodiscard]] const Kernel& kernel() const { return kernel_; }

 private:
  [[nodiscard]] TensorView blocks(const float* data) const {
    return view(data, DType::f32, blocks_, kBlock.out, kBlock.in);
  }

  std::int64_t n_;
  std::int64_t blocks_;
  Kernel kernel_;
  std::vector<float> weight_;
};

void forward(benchmark::State& state, double sparsity, std::int64_t n, std::int32_t threads) {
  const Layout layout =
      patterns::watts_strogatz(kHidden / kBlock.out, kHidden / kBlock.in, 1 - sparsity, 0.1, 1);
  const Target target = Target::parse(fmt::format("cpu:{}", threads));
  Options options{.block = kBlock, .batch = n, .target = target.to_string()};
  static const std::vector<float> weight = noise(static_cast<std::size_t>(kHidden * kHidden));
  const Sparse as_it_lies(layout, n, options, weight);
  options.config = as_it_lies.kernel().binary().plan.front().config;
  options.config->packed = true;
  const Sparse packed(layout, n, options, weight);
  const std::vector<float> x = noise(static_cast<std::size_t>(n * kHidden));
  std::vector<float> y(x.size());

  omp_set_num_threads(threads);
  Dense dense(n, x, weight, y);
  const Peak peak(target, threads);
  as_it_lies.run(x, y);
  packed.run(x, y);
  dense.run();

  std::vector<double> our_rates;
  std::vector<double> dense_rates;
  std::vector<double> peak_rates;
  std::vector<double> packed_gains;
  const double our_flops = 2.0 * static_cast<double>(layout.blocks() * kBlock.out * kBlock.in * n);
  const double dense_flops = 2.0 * kHidden * kHidden * static_cast<double>(n);
  for ([[maybe_unused]] const auto round : state) {
    settle();
    peak_rates.push_back(peak.measure());
    constexpr int kTurns = 4;
    const double seconds = seconds_of([&] {
      for (int turn = 0; turn < kTurns; ++turn) as_it_lies.run(x, y);
    });
    const double packed_seconds = seconds_of([&] {
      for (int turn = 0; turn < kTurns; ++turn) packed.run(x, y);
    });
    packed_gains.push_back(seconds / packed_seconds);
    our_rates.push_back(our_flops * kTurns / seconds);
    dense_rates.push_back(dense_flops / seconds_of([&] { dense.run(); }));
    state.SetIterationTime(seconds / kTurns);
  }
  const double rate = median(our_rates);
  state.counters["nonzero_GFLOPs"] = rate / 1e9;
  state.counters["dense_GFLOPs"] = median(dense_rates) / 1e9;
  const double highest = *std::max_element(peak_rates.begin(), peak_rates.end());
  state.counters["peak_GFLOPs"] = highest / 1e9;
  state.counters["of_dense"] = rate / median(dense_rates);
  state.counters["of_peak"] = rate / highest;
  state.counters["speedup"] = rate / median(dense_rates) * dense_flops / our_flops;
  state.counters["packed_gain"] = median(packed_gains);
  state.SetLabel(to_string(as_it_lies.kernel().binary().plan));
}

}  // namespace
}  // namespace sparsekiln

int main(int argc, char** argv) {
  const std::int32_t threads = sparsekiln::Target::host().workers;
  for (const double sparsity : {0.97, 0.9, 0.5})
    for (const std::int64_t n : {32, 64})
      benchmark::RegisterBenchmark(
          fmt::format("forward/sparsity:{}/n:{}/threads:{}", sparsity, n, threads).c_str(),
          [=](benchmark::State& state) { sparsekiln::forward(state, sparsity, n, threads); })
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond)
          ->Iterations(9);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
