// Processes and threads that meet in one folder.

#include <atomic>
#include <thread>

#include <doctest/doctest.h>

#include "cache/store.h"
#include "processes.h"
#include "scratch_folder.h"

using sparsekiln::cache::Store;

namespace {

constexpr int kRounds = 200;
constexpr std::size_t kFirstSize = 50'000, kSecondSize = 20'000;

bool is_one_of_the_two(const std::vector<std::byte>& payload) {
  return payload == payload_of(kFirstSize, 1) || payload == payload_of(kSecondSize, 2);
}

}  // namespace

TEST_CASE("processes that put the same key while others read it never cause a bad read") {
  const ScratchFolder scratch;
  const auto writer = [&](std::size_t size, unsigned seed) {
    return in_child([&, size, seed] {
      Store store(scratch.path() / "store");
      for (int round = 0; round < kRounds; ++round) store.put(sample_identity(), payload_of(size, seed));
      return store.counters().stores == kRounds ? 0 : 1;
    });
  };
  const auto read_all = [&] {
    Store store(scratch.path() / "store");
    int bad = 0;
    for (int round = 0; round < kRounds; ++round) {
      const auto payload = store.get(sample_identity());
      if (payload && !is_one_of_the_two(*payload)) ++bad;
    }
    return bad + static_cast<int>(store.counters().quarantined);
  };
  const pid_t first = writer(kFirstSize, 1);
  const pid_t second = writer(kSecondSize, 2);
  const pid_t reader = in_child([&] { return read_all() == 0 ? 0 : 1; });
  CHECK(read_all() == 0);
  CHECK(wait_for(first) == 0);
  CHECK(wait_for(second) == 0);
  CHECK(wait_for(reader) == 0);

  Store store(scratch.path() / "store");
  const auto last = store.get(sample_identity());
  REQUIRE(last.has_value());
  CHECK(is_one_of_the_two(*last));
  CHECK(files_with(scratch.path(), ".entry").size() == 1);
}

TEST_CASE("threads share a store, and its counters add up") {
  const ScratchFolder scratch;
  Store store(scratch.path());
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 50; ++round) {
        const auto identity = sample_identity(std::to_string((static_cast<int>(thread) + round) % 3));
        const auto seed = static_cast<unsigned>((static_cast<int>(thread) + round) % 3);
        store.put(identity, payload_of(3000, seed));
        if (store.get(identity) != payload_of(3000, seed)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(store.counters().stores == 200);
  CHECK(store.counters().hits == 200);
  CHECK(store.counters().quarantined == 0);
}

TEST_CASE("threads that all fail to write warn once, and lose nothing") {
  const ScratchFolder scratch;
  write_file(scratch.path() / "file", {});
  std::atomic<int> warnings = 0, wrong = 0;
  Store store(scratch.path() / "file", [&](const std::string&) { ++warnings; });
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 50; ++round) {
        const auto identity = sample_identity(std::to_string(thread));
        store.put(identity, payload_of(3000, thread));
        if (store.get(identity) != payload_of(3000, thread)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(warnings == 1);
  CHECK(store.counters().failures == 200);
}
