/// What a store with 10,000 entries costs those who read it.
///
/// `warm_compile` and `warm_build` answer from the store in a process of their own each time: the wall time
/// in `compile` for this host, and in `build` for an sm_90. `look_up` is one `Store::get` in a process that
/// holds the store. `reader_while_trimming` is the longest of all gets while 10,000 entries are trimmed to
/// 1,000, `reader_held_up` the same without the time in which the reader could have run and had no processor,
/// `reader_alone` the longest of 10,000 by the clock while nobody trims; `trim` is how long that trim takes.
///
///   cache_speed [Google Benchmark's options]
///   cache_speed --write docs/cache.md    puts its table between the marks in that file

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sparsekiln/sparsekiln.h>

#include "cache/entry.h"
#include "cache/store.h"
#include "tests/temporary_folder.h"

namespace sk = sparsekiln;
namespace cache = sparsekiln::cache;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEntries = 10'000;
constexpr int kLeft = 1'000;
constexpr std::size_t kPayload = 20'000;  // a small kernel's cubin and PTX

using sparsekiln::test::TemporaryFolder;

cache::Identity identity_of(int n) {
  cache::Identity identity;
  identity.add("what", "filler").add("number", std::to_string(n));
  return identity;
}

/// Fills a folder with entries that nobody asks for.
void fill(const std::filesystem::path& path) {
  const cache::Folder folder(path);
  const std::vector<std::byte> payload(kPayload, std::byte{0x5a});
  for (int n = 0; n < kEntries; ++n) {
    const cache::Identity identity = identity_of(n);
    folder.publish(identity.key().hex() + ".entry", cache::encode(identity, payload));
  }
}

/// The full store that all measurements share which change nothing in it.
const std::filesystem::path& full_store() {
  static const TemporaryFolder folder;
  static const bool filled = (fill(folder.path()), true);
  static_cast<void>(filled);
  return folder.path();
}

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

/// Seconds that this thread could have run and had no processor, since it began.
class QueueClock {
 public:
  QueueClock() : file_(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  [[nodiscard]] double seconds() const {
    char text[128] = "";
    unsigned long long ran = 0, waited = 0;
    const ssize_t got = ::pread(file_.get(), text, sizeof(text) - 1, 0);
    return got > 0 && std::sscanf(text, "%llu %llu", &ran, &waited) == 2 ? double(waited) * 1e-9 : 0;
  }

 private:
  cache::Descriptor file_;
};

/// The longest look-ups of a reader: by the clock, and without what it waited for a processor.
struct Longest {
  double wall = 0;
  double held = 0;

  void look_up(cache::Store& store, int n, const QueueClock& queue) {
    const double queued = queue.seconds();
    const auto began = Clock::now();
    benchmark::DoNotOptimize(store.get(identity_of(n)));
    const double seconds = seconds_since(began);
    wall = std::max(wall, seconds);
    held = std::max(held, seconds - (queue.seconds() - queued));
  }
};

sk::Layout layer() { return sk::patterns::random(64, 64, 0.9, 1); }

/// The work of a child: one request, its milliseconds on standard output.
int answer_once(const std::string& target, const std::filesystem::path& folder) {
  const sk::Options options{.block = {32, 32}, .batch = 32, .target = target, .cache_dir = folder};
  if (target == "cpu") {
    const sk::Kernel kernel = sk::compile(layer(), options);
    std::printf("%s %.6f\n", std::string(sk::name(kernel.from())).c_str(), kernel.compile_ms());
  } else {
    const sk::Built built = sk::build(layer(), options);
    std::printf("%s %.6f\n", std::string(sk::name(built.from)).c_str(), built.compile_ms);
  }
  return 0;
}

/// Seconds in a new process that answers from `expected`; negative where it did not.
double seconds_in_new_process(const std::string& target, const std::string& expected) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = fmt::format("'{}' --answer-once {} '{}'", self, target, full_store().string());
  FILE* const child = popen(command.c_str(), "r");
  char from[16] = "";
  double ms = -1;
  const bool read = std::fscanf(child, "%15s %lf", from, &ms) == 2;
  const int status = pclose(child);
  return read && status == 0 && from == expected ? ms / 1000 : -1;
}

void warm(benchmark::State& state, const std::string& target) {
  static_cast<void>(seconds_in_new_process(target, "compiled"));
  for (auto _ : state) {
    const double seconds = seconds_in_new_process(target, "store");
    if (seconds < 0) state.SkipWithError("the child did not answer from the store");
    state.SetIterationTime(seconds);
  }
}

void look_up(benchmark::State& state) {
  cache::Store store(full_store());
  int n = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(store.get(identity_of(n)));
    n = (n + 1) % kEntries;
  }
}

/// A put that has a full store trimmed in the background, and a reader meanwhile.
template <typename Measure>
void trim_beside_reader(benchmark::State& state, Measure measure) {
  for (auto _ : state) {
    const TemporaryFolder folder;
    fill(folder.path());
    cache::Store store(
        folder.path(), {},
        {.caps = cache::Caps{.bytes = std::uint64_t{1} << 40, .files = kLeft}, .patience = {}});
    const auto began = Clock::now();
    store.put(identity_of(kEntries), std::vector<std::byte>(kPayload));  // begins to trim
    std::atomic<bool> trimming = true;
    double trim_seconds = 0;
    std::thread waiter([&] {
      store.wait_for_trim();
      trim_seconds = seconds_since(began);
      trimming = false;
    });
    const QueueClock queue;
    Longest longest;
    for (int n = 0; trimming; n = (n + 1) % kEntries) longest.look_up(store, n, queue);
    waiter.join();
    state.SetIterationTime(measure(trim_seconds, longest));
  }
}

void trim(benchmark::State& state) {
  trim_beside_reader(state, [](double trim_seconds, const Longest&) { return trim_seconds; });
}

void reader_while_trimming(benchmark::State& state) {
  trim_beside_reader(state, [](double, const Longest& longest) { return longest.wall; });
}

void reader_held_up(benchmark::State& state) {
  trim_beside_reader(state, [](double, const Longest& longest) { return longest.held; });
}

/// A reader alone: what the machine itself does to the longest of its look-ups.
void reader_alone(benchmark::State& state) {
  for (auto _ : state) {
    cache::Store store(full_store());
    const QueueClock queue;
    Longest longest;
    for (int n = 0; n < kEntries; ++n) longest.look_up(store, n, queue);
    state.SetIterationTime(longest.wall);
  }
}

/// What each row of the table says, and what it must not exceed, in milliseconds; 0: no bound.
struct Row {
  std::string what;
  double bound_ms = 0;
};
const std::vector<std::pair<std::string, Row>>& rows() {
  static const std::vector<std::pair<std::string, Row>> all = {
      {"warm_compile", {"`compile()` for this host in a new process, loading included", 10}},
      {"warm_build", {"`build()` for sm_90 in a new process", 10}},
      {"look_up", {"one look-up", 0}},
      {"reader_alone", {"longest look-up of 10,000, nobody trimming", 0}},
      {"reader_while_trimming", {"longest look-up while 10,000 are trimmed to 1,000", 5}},
      {"reader_held_up", {"the same, without waiting for a processor", 0}},
      {"trim", {"that trim", 0}},
  };
  return all;
}

/// Keeps the median of every benchmark, and prints as usual.
class Medians : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    benchmark::ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      failed_ = failed_ || run.error_occurred;
      if (run.run_type == Run::RT_Aggregate && run.aggregate_name == "median")
        ms_[run.run_name.function_name] =
            run.GetAdjustedRealTime() / benchmark::GetTimeUnitMultiplier(run.time_unit) * 1e3;
    }
  }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] std::string table() const {
    std::string text = "| with 10,000 entries in the store | median | bound |\n|---|---|---|\n";
    for (const auto& [name, row] : rows())
      if (const auto found = ms_.find(name); found != ms_.end())
        text += fmt::format("| {} | {:.3g} ms | {} |\n", row.what, found->second,
                            row.bound_ms == 0 ? "" : fmt::format("{} ms", row.bound_ms));
    return text;
  }

 private:
  std::map<std::string, double> ms_;
  bool failed_ = false;
};

/// Puts `table` between the marks of a Markdown file.
bool write_table(const std::filesystem::path& path, const std::string& table) {
  const std::string begin = "<!-- cache_speed -->\n", end = "<!-- end of cache_speed -->";
  std::ifstream in(path);
  std::string text(std::istreambuf_iterator<char>(in), {});
  const std::size_t from = text.find(begin), to = text.find(end);
  if (from == std::string::npos || to == std::string::npos || to < from) return false;
  text.replace(from + begin.size(), to - from - begin.size(), table);
  return static_cast<bool>(std::ofstream(path) << text);
}

void declare() {
  using benchmark::RegisterBenchmark;
  const auto medians = [](benchmark::internal::Benchmark* one, int iterations, int repetitions) {
    one->Iterations(iterations)
        ->Repetitions(repetitions)
        ->ReportAggregatesOnly()
        ->Unit(benchmark::kMillisecond);
    return one;
  };
#ifdef SPARSEKILN_CPU
  medians(RegisterBenchmark("warm_compile", warm, "cpu"), 1, 15)->UseManualTime();
#endif
  medians(RegisterBenchmark("warm_build", warm, "sm_90:132"), 1, 15)->UseManualTime();
  medians(RegisterBenchmark("look_up", look_up), kEntries, 3);
  medians(RegisterBenchmark("reader_alone", reader_alone), 1, 5)->UseManualTime();
  medians(RegisterBenchmark("reader_while_trimming", reader_while_trimming), 1, 5)->UseManualTime();
  medians(RegisterBenchmark("reader_held_up", reader_held_up), 1, 5)->UseManualTime();
  medians(RegisterBenchmark("trim", trim), 1, 3)->UseManualTime();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--answer-once") return answer_once(argv[2], argv[3]);
  std::string report;
  if (argc == 3 && std::string(argv[1]) == "--write") {
    report = argv[2];
    argc = 1;
  }
  declare();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Medians medians;
  benchmark::RunSpecifiedBenchmarks(&medians);
  if (medians.failed()) return 1;
  return report.empty() || write_table(report, medians.table()) ? 0 : 2;
}
