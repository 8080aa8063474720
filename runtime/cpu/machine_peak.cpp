#include "runtime/cpu/machine_peak.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <sparsekiln/threads.h>

#include "compiler/cpu/object.h"
#include "compiler/cpu_levels.h"
#include "runtime/cpu/thread_pool.h"

namespace sparsekiln::cpu {
namespace {

constexpr int kChains = 12;
constexpr int kLoads = 8;                 ///< vectors a turn of the reading loop
constexpr std::int64_t kShare = 1 << 16;  ///< bytes that a thread reads before it asks for more

std::string wide(std::int32_t lanes) {
  return fmt::format("\"prefer-vector-width\"=\"{0}\" \"min-legal-vector-width\"=\"{0}\"", lanes * 32);
}

std::string sum_of_chains(const std::string& type, int chains) {
  std::string text = fmt::format("  %s0 = fadd {0} %n0, zeroinitializer\n", type);
  for (int i = 1; i < chains; ++i) text += fmt::format("  %s{} = fadd {} %s{}, %n{}\n", i, type, i - 1, i);
  return text + fmt::format("  store {} %s{}, ptr %out, align 4\n", type, chains - 1);
}

}  // namespace

FmaPeak::FmaPeak(const Target& target)
    : lanes_(level_of(target).lanes),
      threads_(std::min(target.workers, threads())),
      object_(compile_object(module(lanes_), target)),
      loop_(reinterpret_cast<void (*)(std::int64_t, float*)>(object_.symbol("peak"))) {}

std::int64_t FmaPeak::turns(double seconds) {
  // Twelve chains take six cycles a turn on two multiply-adders, at some 3 GHz.
  return std::max<std::int64_t>(1000, static_cast<std::int64_t>(seconds * 0.5e9));
}

void FmaPeak::run(std::int64_t turns) const {
  struct Turns {
    const FmaPeak* peak;
    std::int64_t count;
  };
  const Turns all{this, turns};
  const auto job = [](const void* context, std::int32_t, std::int64_t) {
    const auto& now = *static_cast<const Turns*>(context);
    float out[64] = {};
    now.peak->loop_(now.count, out);
  };
  ThreadPool::shared().run({job, &all, 1, threads_, threads_});
}

double FmaPeak::flops(std::int64_t turns) const {
  return 2.0 * kChains * lanes_ * static_cast<double>(turns) * threads_;
}

std::string FmaPeak::module(std::int32_t lanes) {
  const std::string type = fmt::format("<{} x float>", lanes);
  std::string phis;
  std::string steps;
  for (int i = 0; i < kChains; ++i) {
    phis += fmt::format("  %a{0} = phi {1} [ zeroinitializer, %entry ], [ %n{0}, %loop ]\n", i, type);
    steps +=
        fmt::format("  %n{0} = call {1} @llvm.fmuladd.v{2}f32({1} %f, {1} %f, {1} %a{0})\n", i, type, lanes);
  }
  return fmt::format(
      "declare {0} @llvm.fmuladd.v{1}f32({0}, {0}, {0})\n"
      "define void @peak(i64 %turns, ptr %out) {2} {{\n"
      "entry:\n  %f = load {0}, ptr %out, align 4\n  br label %loop\n"
      "loop:\n  %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n{3}{4}"
      "  %next = add i64 %i, 1\n  %more = icmp slt i64 %next, %turns\n"
      "  br i1 %more, label %loop, label %end\n"
      "end:\n{5}  ret void\n}}\n",
      type, lanes, wide(lanes), phis, steps, sum_of_chains(type, kChains));
}

ReadBandwidth::ReadBandwidth(const Target& target, std::int64_t bytes)
    : lanes_(level_of(target).lanes),
      threads_(std::min(target.workers, threads())),
      object_(compile_object(module(lanes_), target)),
      loop_(reinterpret_cast<void (*)(const float*, std::int64_t, float*)>(object_.symbol("read"))),
      memory_(static_cast<std::size_t>((bytes + kShare - 1) / kShare * kShare / 4), 1.0F) {}

void ReadBandwidth::run() const {
  const auto job = [](const void* context, std::int32_t, std::int64_t share) {
    const auto& self = *static_cast<const ReadBandwidth*>(context);
    float out[64] = {};
    self.loop_(self.memory_.data() + share * kShare / 4, kShare / (std::int64_t{4} * self.lanes_ * kLoads),
               out);
  };
  ThreadPool::shared().run({job, this, 1, bytes() / kShare, threads_});
}

std::string ReadBandwidth::module(std::int32_t lanes) {
  const std::string type = fmt::format("<{} x float>", lanes);
  std::string phis;
  std::string steps;
  for (int i = 0; i < kLoads; ++i) {
    phis += fmt::format("  %a{0} = phi {1} [ zeroinitializer, %entry ], [ %n{0}, %loop ]\n", i, type);
    steps += fmt::format(
        "  %p{0} = getelementptr inbounds i8, ptr %at, i64 {1}\n  %v{0} = load {2}, ptr %p{0}, align 4\n"
        "  %n{0} = fadd {2} %a{0}, %v{0}\n",
        i, std::int64_t{4} * lanes * i, type);
  }
  return fmt::format(
      "define void @read(ptr %from, i64 %turns, ptr %out) {0} {{\n"
      "entry:\n  br label %loop\n"
      "loop:\n  %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n"
      "  %at = phi ptr [ %from, %entry ], [ %on, %loop ]\n{1}{2}"
      "  %on = getelementptr inbounds i8, ptr %at, i64 {3}\n"
      "  %next = add i64 %i, 1\n  %more = icmp slt i64 %next, %turns\n"
      "  br i1 %more, label %loop, label %end\n"
      "end:\n{4}  ret void\n}}\n",
      wide(lanes), phis, steps, std::int64_t{4} * lanes * kLoads, sum_of_chains(type, kLoads));
}

MeasuredPeak measure_peak(const Target& target, std::int64_t bytes) {
  constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;
  constexpr int kRuns = 15;
  const auto best_seconds = [](const auto& work) {
    double best = 0;
    for (int i = 0; i < kRuns; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      work();
      const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (best == 0 || taken < best) best = taken;
    }
    return best;
  };
  const FmaPeak peak(target);
  const std::int64_t turns = FmaPeak::turns(5e-3);
  const double fma = best_seconds([&] { peak.run(turns); });
  const ReadBandwidth reader(target, std::clamp<std::int64_t>(bytes, 1, kMostBytes));
  const int passes = static_cast<int>(std::max<std::int64_t>(1, (8 << 20) / reader.bytes()));
  const double read = best_seconds([&] {
    for (int i = 0; i < passes; ++i) reader.run();
  });
  return {peak.flops(turns) / fma / 1e9, static_cast<double>(reader.bytes()) * passes / read / 1e9};
}

}  // namespace sparsekiln::cpu
