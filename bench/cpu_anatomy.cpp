// Where the time of forward on this machine's processors goes, cell by cell: layers of 4096 × 4096, random
// blocks, the weight packed. It says what limits a cell that is below the peak in cpu_forward.
//
// Every iteration is one round of all measurements, one after the other on the same threads. The counters are
// medians over the rounds:
//  of_peak            a launch: FLOPs of present blocks over the round's peak of float32 multiply-adds
//  loop_memory        its product pass alone, in the same unit; if that packs x, less the time of packing
//  loop_l3, l2, l1    the same pass where the weight is 4 MiB, 256 KiB or 16 KiB that are mapped repeatedly
//  pack, store, wait  shares of the time of a launch: the pass that packs x; the product pass of a layer
//                     without blocks, which writes y; and the time in which a thread has no job
//
//  --short        measures only small layers, for tests (bench/command_line.h)
//  --dtype=TYPE   of x and the weight (f32)
//  --target=LIST  of levels that this machine runs, such as x86-64-v3:2,x86-64-v4:2 (cpu)
//  --write FILE   puts the table between the marks in docs/performance.md

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sparsekiln/sparsekiln.h>

#include "bench/command_line.h"
#include "bench/contest.h"
#include "bench/document.h"
#include "compiler/cpu/call.h"
#include "runtime/build.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/loaded_object.h"
#include "runtime/cpu/machine_peak.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/device.h"

namespace sparsekiln {
namespace {

using bench::Contestant;
using bench::kStretch;
using bench::Rounds;

struct Axes {
  std::int64_t features = 4096;
  std::vector<std::int32_t> blocks{8, 16, 32, 64};
  std::vector<double> densities{0.05, 0.1, 0.25, 1.0};
  std::vector<std::int64_t> batches{32, 64, 256};
  int rounds = 7;
};
const Axes kShort{256, {8, 32}, {0.25}, {64}, 2};

struct Case {
  std::int64_t features;
  std::int32_t block;
  double density;
  std::int64_t n;
  Target target;
  DType dtype;
};

/// Where a weight lies, by the memory that it takes.
struct Place {
  const char* name;
  std::int64_t bytes;
};
constexpr Place kPlaces[] = {{"l3", 4 << 20}, {"l2", 256 << 10}, {"l1", 16 << 10}};

/// Addresses for so many bytes, which all mean the same few bytes of memory.
class Mirrored {
 public:
  Mirrored(std::int64_t bytes, std::int64_t memory)
      : bytes_((bytes + memory - 1) / memory * memory + kBeyond) {
    const int file = memfd_create("sparsekiln-anatomy", 0);
    if (file < 0 || ftruncate(file, memory) != 0) fail();
    void* const all = mmap(nullptr, size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) fail();
    address_ = static_cast<std::byte*>(all);
    for (std::int64_t at = 0; at < bytes_; at += memory) {
      const auto length = static_cast<std::size_t>(std::min(memory, bytes_ - at));
      if (mmap(address_ + at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
        fail();
    }
    close(file);
    auto* const values = reinterpret_cast<float*>(address_);
    std::fill(values, values + memory / 4, 0.25F);
  }
  ~Mirrored() { munmap(address_, size()); }
  Mirrored(const Mirrored&) = delete;
  Mirrored& operator=(const Mirrored&) = delete;

  [[nodiscard]] const float* data() const { return reinterpret_cast<const float*>(address_); }

 private:
  static constexpr std::int64_t kBeyond = 16 << 10;  ///< that a pass may prefetch
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(bytes_); }
  [[noreturn]] static void fail() { throw Error(ErrorKind::internal, "memory cannot be mapped twice here"); }

  std::int64_t bytes_;
  std::byte* address_ = nullptr;
};

/// The passes of a kernel one by one, on the pool's threads as a launch runs them.
class Passes {
 public:
  Passes(const Layout& layout, const Options& options, std::int64_t n)
      : binary_(build(layout, options).binary),
        module_(cpu::open_device(binary_->target.workers)->load(binary_)),
        object_(cpu::LoadedObject::of(binary_->code)) {
    const Entry& entry = binary_->entries.back();
    for (const std::string& name : entry.passes)
      passes_.push_back(reinterpret_cast<Pass>(object_->symbol(name)));
    std::string pack = entry.passes.back();
    pack_ = reinterpret_cast<Pass>(object_->symbol(pack.replace(0, std::string("product").size(), "pack")));
    workers_ = entry.workers;
    jobs_ = entry.batch_tiles(n) * workers_;
    workspace_bytes_ = entry.workspace_bytes(n);
    busy_.resize(static_cast<std::size_t>(jobs_) * passes_.size());
  }

  /// Whether a worker that has a batch tile to itself packs x in the product pass.
  [[nodiscard]] bool packs_inside() const { return passes_.size() == 1; }
  /// Packs x, whether or not that is a pass of its own.
  void pack(cpu::Call call) {
    call.workspace = module_->workspace(nullptr, workspace_bytes_);
    call_ = &call;
    cpu::ThreadPool::shared().run({pack_job, this, 1, jobs_, binary_->target.workers});
  }
  [[nodiscard]] std::int32_t last() const { return static_cast<std::int32_t>(passes_.size()) - 1; }

  /// The passes from number `first` to `last`.
  void run(cpu::Call call, std::int32_t first, std::int32_t last) {
    call.workspace = module_->workspace(nullptr, workspace_bytes_);
    call_ = &call;
    first_ = first;
    cpu::ThreadPool::shared().run({job, this, last - first + 1, jobs_, binary_->target.workers});
  }
  /// Seconds of all jobs of the last run that began with pass 0, added up.
  [[nodiscard]] double busy_seconds() const {
    double seconds = 0;
    for (const Busy& one : busy_) seconds += one.seconds;
    return seconds;
  }

 private:
  using Pass = void (*)(const cpu::Call*, std::int32_t worker, std::int32_t batch_tile);
  /// The time of one job, on a cache line of its own.
  struct alignas(64) Busy {
    double seconds = 0;
  };
  static void job(const void* context, std::int32_t pass, std::int64_t number) {
    const auto& self = *static_cast<const Passes*>(context);
    const auto begin = std::chrono::steady_clock::now();
    self.passes_[static_cast<std::size_t>(self.first_ + pass)](
        self.call_, static_cast<std::int32_t>(number % self.workers_),
        static_cast<std::int32_t>(number / self.workers_));
    self.busy_[static_cast<std::size_t>((self.first_ + pass) * self.jobs_ + number)].seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  static void pack_job(const void* context, std::int32_t, std::int64_t number) {
    const auto& self = *static_cast<const Passes*>(context);
    self.pack_(self.call_, static_cast<std::int32_t>(number % self.workers_),
               static_cast<std::int32_t>(number / self.workers_));
  }

  std::shared_ptr<const Binary> binary_;
  std::unique_ptr<Module> module_;
  std::shared_ptr<const cpu::LoadedObject> object_;
  std::vector<Pass> passes_;
  Pass pack_ = nullptr;
  std::int64_t workers_ = 0;
  std::int64_t jobs_ = 0;
  std::int64_t workspace_bytes_ = 0;
  const cpu::Call* call_ = nullptr;
  std::int32_t first_ = 0;
  mutable std::vector<Busy> busy_;
};

void anatomy(benchmark::State& state, const Case& given) {
  const std::int64_t grid = given.features / given.block;
  const Layout layout = patterns::random(grid, grid, given.density, 1);
  const Target& target = given.target;
  Options options{.block = {given.block, given.block},
                  .batch = given.n,
                  .dtype = given.dtype,
                  .target = target.to_string()};
  Config config = build(layout, options).binary->plan.front().config;
  config.packed = true;
  options.config = config;
  Passes passes(layout, options, given.n);
  Passes empty(Layout::from_mask(static_cast<std::int32_t>(grid), static_cast<std::int32_t>(grid),
                                 std::vector<std::uint8_t>(static_cast<std::size_t>(grid * grid), 0)),
               options, given.n);

  const std::int64_t elements = layout.blocks() * given.block * given.block;
  const auto weight_bytes = elements * static_cast<std::int64_t>(size_of(given.dtype));
  const std::vector<float> weight(static_cast<std::size_t>(weight_bytes / 4 + 4096), 0.25F);
  const std::vector<float> x(static_cast<std::size_t>(given.n * given.features), 0.5F);
  std::vector<float> y(x.size());
  cpu::Call call;
  call.x = x.data();
  call.w = weight.data();
  call.y = y.data();
  call.n = given.n;
  call.x_stride = call.y_stride = given.features;

  const Contestant whole([&] { passes.run(call, 0, passes.last()); });
  const Contestant pack([&] { passes.pack(call); });
  const Contestant loop([&] { passes.run(call, passes.last(), passes.last()); });
  const Contestant store([&] { empty.run(call, empty.last(), empty.last()); });
  std::vector<Contestant> mirrored;
  std::vector<std::unique_ptr<Mirrored>> mirrors;
  for (const Place& place : kPlaces) {
    mirrors.push_back(std::make_unique<Mirrored>(weight_bytes, place.bytes));
    cpu::Call with = call;
    with.w = mirrors.back()->data();
    mirrored.emplace_back([&passes, with] { passes.run(with, passes.last(), passes.last()); });
  }

  const cpu::FmaPeak peak(target);
  const std::int64_t turns = cpu::FmaPeak::turns(kStretch);
  const double flops = 2 * static_cast<double>(elements) * static_cast<double>(given.n);
  Rounds rounds;
  for ([[maybe_unused]] const auto round : state) {
    peak.run(turns / 8);  // wakes the threads up
    const double rate = peak.flops(turns) / bench::seconds_of([&] { peak.run(turns); });
    const double seconds = whole.measure();
    const double once = bench::wall_seconds_of([&] { passes.run(call, 0, passes.last()); });
    const double busy = passes.busy_seconds() / target.workers;
    rounds.add("of_peak", flops / seconds / rate);
    const double packing = pack.measure();
    const double inside = passes.packs_inside() ? packing : 0;
    rounds.add("pack", packing / seconds);
    rounds.add("store", (store.measure() - inside) / seconds);
    rounds.add("wait", 1 - busy / once);
    rounds.add("loop_memory", flops / (loop.measure() - inside) / rate);
    for (std::size_t i = 0; i < mirrored.size(); ++i)
      rounds.add(fmt::format("loop_{}", kPlaces[i].name), flops / (mirrored[i].measure() - inside) / rate);
    state.SetIterationTime(seconds);
  }
  rounds.report(state);
  state.SetLabel(to_string(config));
}

std::vector<Target> parse_targets(const std::string& text) {
  std::vector<Target> targets;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    targets.push_back(Target::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return targets;
}

std::string percent(const benchmark::BenchmarkReporter::Run& run, const char* counter) {
  return fmt::format("{:.0f}", 100 * static_cast<double>(run.counters.at(counter)));
}

std::string row_of(const benchmark::BenchmarkReporter::Run& run) {
  std::string row = "|";
  for (const char* const part : {"target", "block", "density", "n"})
    row += fmt::format(" {} |", bench::part_of_name(run, part));
  for (const char* const counter :
       {"of_peak", "loop_memory", "loop_l3", "loop_l2", "loop_l1", "pack", "store", "wait"})
    row += fmt::format(" {} |", percent(run, counter));
  return row + "\n";
}

constexpr const char* kHead =
    "| level | block | density | n | launch, % of peak | product pass | weight in L3 | in L2 | in L1 | "
    "packing x, % of "
    "the launch | store | waiting |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n";

}  // namespace
}  // namespace sparsekiln

int main(int argc, char** argv) {
  using namespace sparsekiln;
  std::optional<bench::Document> document;
  std::string rows;
  const int status = bench::run_benchmarks(
      argc, argv,
      [&](bench::CommandLine& line, bool is_short) {
        if (const auto path = line.take("--write")) document.emplace(*path, "cpu_anatomy");
        const std::vector<Target> targets = parse_targets(line.take("--target").value_or("cpu"));
        const DType dtype = parse_dtype(line.take("--dtype").value_or("f32"));
        const Axes axes = is_short ? kShort : Axes{};
        for (const Target& target : targets)
          for (const std::int32_t block : axes.blocks)
            for (const double density : axes.densities)
              for (const std::int64_t n : axes.batches)
                benchmark::RegisterBenchmark(
                    fmt::format("anatomy/target:{}/block:{}/density:{}/n:{}", target.arch, block, density, n)
                        .c_str(),
                    [=](benchmark::State& state) {
                      anatomy(state, {axes.features, block, density, n, target, dtype});
                    })
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
