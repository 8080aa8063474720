/// What a store with 10,000 entries costs its readers.
///
/// `warm_compile` and `warm_build` answer from the store in a new process each time: the wall time in
/// `compile` for this host, and in `build` for an sm_90. `look_up` is one `Store::get` in a process that
/// holds the store. `reader_while_trimming` is the longest of all gets while 10,000 entries are trimmed to
/// 1,000. `reader_held_up` is the same without the time in which the reader could have run and had no
/// processor. `reader_alone` is the longest of 10,000 by the clock without a trim; `trim` is how long that
/// trim takes.
///
///  cache_speed [--short] [Google Benchmark's options]
///  cache_speed --write docs/cache.md    puts its table between the marks in that file
///
/// With --short the store has 200 entries, of which 20 are left.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sparsekiln/sparsekiln.h>

#include "bench/command_line.h"
#include "bench/document.h"
#include "cache/entry.h"
#include "cache/store.h"
#include "tests/temporary_folder.h"

namespace sk = sparsekiln;
namespace cache = sparsekiln::cache;

namespace {

using Clock = std::chrono::steady_clock;

/// The stores that are read.
struct Size {
  int entries = 10'000;
  int left = 1'000;  ///< by a trim
};
constexpr Size kShort{200, 20};
constexpr std::size_t kPayload = 20'000;  // a small kernel's cubin and PTX

using sparsekiln::test::TemporaryFolder;

cache::Identity identity_of(int n) {
  cache::Identity identity;
  identity.add("what", "filler").add("number", std::to_string(n));
  return identity;
}

/// Fills a folder with entries that are never requested.
void fill(const std::filesystem::path& path, int entries) {
  const cache::Folder folder(path);
  const std::vector<std::byte> payload(kPayload, std::byte{0x5a});
  for (int n = 0; n < entries; ++n) {
    const cache::Identity identity = identity_of(n);
    folder.publish(identity.key().hex() + ".entry", cache::encode(identity, payload));
  }
}

/// The full store that is shared by all measurements that do not change it.
const std::filesystem::path& full_store(const Size& size) {
  static const TemporaryFolder folder;
  static const bool filled = (fill(folder.path(), size.entries), true);
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
  sk::Descriptor file_;
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

/// A request in a process of its own.
struct Answered {
  std::string from;
  double seconds = 0;
};

Answered answer_in_new_process(const std::string& target, const Size& size) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      fmt::format("'{}' --answer-once {} '{}'", self, target, full_store(size).string());
  FILE* const child = popen(command.c_str(), "r");
  char from[16] = "";
  double ms = -1;
  const bool read = std::fscanf(child, "%15s %lf", from, &ms) == 2;
  const int status = pclose(child);
  if (!read || status != 0)
    throw sk::Error(sk::ErrorKind::internal, fmt::format("{} ended with status {}", command, status));
  return {from, ms / 1000};
}

void warm(benchmark::State& state, const std::string& target, const Size& size) {
  static_cast<void>(answer_in_new_process(target, size));  // the first one compiles
  for (auto _ : state) {
    const Answered answered = answer_in_new_process(target, size);
    if (answered.from != "store") return state.SkipWithError("the child did not answer from the store");
    state.SetIterationTime(answered.seconds);
  }
}

void look_up(benchmark::State& state, const Size& size) {
  cache::Store store(full_store(size));
  int n = 0;
  for (auto _ : state) {
    if (!store.get(identity_of(n))) return state.SkipWithError("an entry of the full store was not found");
    n = (n + 1) % size.entries;
  }
}

/// A put that has a full store trimmed in the background, and a reader meanwhile.
template <typename Measure>
void trim_beside_reader(benchmark::State& state, const Size& size, Measure measure) {
  for (auto _ : state) {
    const TemporaryFolder folder;
    fill(folder.path(), size.entries);
    cache::Store store(
        folder.path(), {},
        {.caps = cache::Caps{.bytes = std::uint64_t{1} << 40, .files = static_cast<std::uint64_t>(size.left)},
         .patience = {}});
    const auto began = Clock::now();
    store.put(identity_of(size.entries), std::vector<std::byte>(kPayload));  // begins to trim
    std::atomic<bool> trimming = true;
    double trim_seconds = 0;
    std::thread waiter([&] {
      store.wait_for_trim();
      trim_seconds = seconds_since(began);
      trimming = false;
    });
    const QueueClock queue;
    Longest longest;
    int n = 0;
    do longest.look_up(store, n++ % size.entries, queue);
    while (trimming);
    waiter.join();
    state.SetIterationTime(measure(trim_seconds, longest));
  }
}

void trim(benchmark::State& state, const Size& size) {
  trim_beside_reader(state, size, [](double trim_seconds, const Longest&) { return trim_seconds; });
}

void reader_while_trimming(benchmark::State& state, const Size& size) {
  trim_beside_reader(state, size, [](double, const Longest& longest) { return longest.wall; });
}

void reader_held_up(benchmark::State& state, const Size& size) {
  trim_beside_reader(state, size, [](double, const Longest& longest) { return longest.held; });
}

/// A reader alone: how long the machine itself delays its look-ups.
void reader_alone(benchmark::State& state, const Size& size) {
  for (auto _ : state) {
    cache::Store store(full_store(size));
    const QueueClock queue;
    Longest longest;
    for (int n = 0; n < size.entries; ++n) longest.look_up(store, n, queue);
    state.SetIterationTime(longest.wall);
  }
}

/// 10000: "10,000".
std::string grouped(int number) {
  return number < 1000 ? std::to_string(number) : fmt::format("{},{:03}", number / 1000, number % 1000);
}

/// What each row of the table says, and what it must not exceed, in milliseconds; 0: no bound.
struct Row {
  std::string name;  ///< of the benchmark
  std::string what;
  double bound_ms = 0;
};
std::vector<Row> rows(const Size& size) {
  const std::string entries = grouped(size.entries), left = grouped(size.left);
  return {
      {"warm_compile", "`compile()` for this host in a new process, loading included", 10},
      {"warm_build", "`build()` for sm_90 in a new process", 10},
      {"look_up", "one look-up", 0},
      {"reader_alone", fmt::format("longest look-up of {}, without a trim", entries), 0},
      {"reader_while_trimming", fmt::format("longest look-up while {} are trimmed to {}", entries, left), 5},
      {"reader_held_up", "the same, without waiting for a processor", 0},
      {"trim", "that trim", 0},
  };
}

std::string table(const sk::bench::Medians& medians, const Size& size) {
  std::string text = fmt::format("| with {} entries in the store | median | bound |\n|---|---|---|\n",
                                 grouped(size.entries));
  for (const Row& row : rows(size))
    if (const auto ms = medians.ms(row.name))
      text += fmt::format("| {} | {:.3g} ms | {} |\n", row.what, *ms,
                          row.bound_ms == 0 ? "" : fmt::format("{} ms", row.bound_ms));
  return text;
}

void declare(bool is_short, const Size& size) {
  using benchmark::RegisterBenchmark;
  const auto medians = [&](benchmark::internal::Benchmark* one, int iterations, int repetitions) {
    one->Iterations(iterations)
        ->Repetitions(is_short ? 2 : repetitions)
        ->ReportAggregatesOnly()
        ->Unit(benchmark::kMillisecond);
    return one;
  };
#ifdef SPARSEKILN_CPU
  medians(RegisterBenchmark("warm_compile", warm, "cpu", size), 1, 15)->UseManualTime();
#endif
  medians(RegisterBenchmark("warm_build", warm, "sm_90:132", size), 1, 15)->UseManualTime();
  medians(RegisterBenchmark("look_up", look_up, size), size.entries, 3);
  medians(RegisterBenchmark("reader_alone", reader_alone, size), 1, 5)->UseManualTime();
  medians(RegisterBenchmark("reader_while_trimming", reader_while_trimming, size), 1, 5)->UseManualTime();
  medians(RegisterBenchmark("reader_held_up", reader_held_up, size), 1, 5)->UseManualTime();
  medians(RegisterBenchmark("trim", trim, size), 1, 3)->UseManualTime();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--answer-once") return answer_once(argv[2], argv[3]);
  std::optional<sk::bench::Document> document;
  Size size;
  sk::bench::Medians medians;
  const int status = sk::bench::run_benchmarks(
      argc, argv,
      [&](sk::bench::CommandLine& line, bool is_short) {
        if (const auto path = line.take("--write")) document.emplace(*path, "cache_speed");
        if (is_short) size = kShort;
        declare(is_short, size);
      },
      [&](const auto& run) { medians.keep(run); });
  if (status == 0 && document) document->write(table(medians, size));
  return status;
}
