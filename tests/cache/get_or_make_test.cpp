// One of those who ask for the same thing makes it, the others get it.

#include <atomic>
#include <csignal>
#include <thread>

#include <doctest/doctest.h>

#include <fcntl.h>

#include <sparsekiln/error.h>

#include "cache/entry.h"
#include "cache/store.h"
#include "processes.h"
#include "scratch_folder.h"

using namespace sparsekiln::cache;
namespace fs = std::filesystem;
using namespace std::chrono_literals;

namespace {

bool any(std::span<const std::byte>) { return true; }

const Limits kImpatient{.caps = Caps{}, .patience = {50ms, 20ms}};

/// Notes that something was made, over processes.
void note(const fs::path& path) {
  const sparsekiln::Descriptor file = sparsekiln::open_file(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
  static_cast<void>(sparsekiln::write_all(file.get(), bytes_of("x")));
}

}  // namespace

TEST_CASE("a missing entry is made and stored, and an existing one is not made again") {
  const ScratchFolder scratch;
  Store store(scratch.path());
  int made = 0;
  const auto make = [&] { return ++made, payload_of(100); };
  const auto first = store.get_or_make(sample_identity(), any, make);
  CHECK(first.made);
  CHECK(first.payload == payload_of(100));
  const auto second = Store(scratch.path()).get_or_make(sample_identity(), any, make);
  CHECK_FALSE(second.made);
  CHECK(second.payload == payload_of(100));
  CHECK(made == 1);
  CHECK(store.counters() == Counters{.misses = 1, .stores = 1});
  CHECK(files_with(scratch.path(), ".lock").empty());
}

TEST_CASE("a payload that the caller cannot use is made again and replaced") {
  const ScratchFolder scratch;
  Store store(scratch.path());
  store.put(sample_identity(), payload_of(100, 1));
  const auto got = store.get_or_make(
      sample_identity(), [](auto payload) { return payload.size() == 200; },
      [] { return payload_of(200, 2); });
  CHECK(got.made);
  CHECK(store.get(sample_identity()) == payload_of(200, 2));
}

TEST_CASE("an error of making is passed on, and leaves no lock and no entry") {
  const ScratchFolder scratch;
  Store store(scratch.path());
  const auto fails = []() -> std::vector<std::byte> { throw std::runtime_error("out of luck"); };
  CHECK_THROWS_WITH(store.get_or_make(sample_identity(), any, fails), "out of luck");
  CHECK(files_with(scratch.path(), sample_identity().key().hex()).empty());
  CHECK(store.get_or_make(sample_identity(), any, [] { return payload_of(10); }).made);
}

TEST_CASE("threads and processes that ask for the same entry at once make it once") {
  const ScratchFolder scratch;
  constexpr int kProcesses = 4, kThreads = 4, kKeys = 5;
  const fs::path folder = scratch.path() / "store", log = scratch.path() / "made";
  const auto ask = [&] {
    Store store(folder);
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&] {
        for (unsigned key = 0; key < kKeys; ++key) {
          const auto make = [&] {
            note(log);
            return payload_of(10'000, key);
          };
          const auto got = store.get_or_make(sample_identity(std::to_string(key)), any, make);
          if (got.payload != payload_of(10'000, key)) ++wrong;
        }
      });
    for (std::thread& thread : threads) thread.join();
    return wrong == 0 ? 0 : 1;
  };
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) children.push_back(in_child(ask));
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  CHECK(fs::file_size(log) == kKeys);
  const Counters totals = Store(folder).totals();
  CHECK(totals.misses == kKeys);
  CHECK(totals.stores == kKeys);
  CHECK(totals.hits == kKeys * (kProcesses * kThreads - 1));
  CHECK(files_with(folder, ".lock").empty());
}

TEST_CASE("a process that has waited long enough makes the entry, too") {
  const ScratchFolder scratch;
  Store store(scratch.path());
  bool second_made = false;
  const auto slow = [&] {
    // While the lock is held here, another one asks.
    Store other(scratch.path(), {}, kImpatient);
    second_made = other.get_or_make(sample_identity(), any, [] { return payload_of(100); }).made;
    return payload_of(100);
  };
  CHECK(store.get_or_make(sample_identity(), any, slow).made);
  CHECK(second_made);
  CHECK(store.get(sample_identity()) == payload_of(100));
  CHECK(files_with(scratch.path(), ".lock").empty());
}

TEST_CASE("a process that waits gets the failure, and does not try again") {
  const ScratchFolder scratch;
  const auto toolchain = [] { return std::string("NVRTC 13.0"); };
  int release[2];
  REQUIRE(::pipe(release) == 0);
  // The child holds the lock until it reads from the pipe, then fails.
  const pid_t child = in_child([&] {
    Store store(scratch.path());
    try {
      store.get_or_make(
          sample_identity(), any,
          [&]() -> std::vector<std::byte> {
            char byte = 0;
            if (::read(release[0], &byte, 1) != 1) ::_exit(3);
            throw sparsekiln::Error(sparsekiln::ErrorKind::compile, "refused", "log", "source");
          },
          toolchain);
    } catch (const sparsekiln::Error&) {
      return 0;
    }
    return 1;
  });
  while (files_with(scratch.path(), ".lock").empty()) std::this_thread::yield();
  Store store(scratch.path());
  bool made = false;
  std::string what;
  REQUIRE(::write(release[1], "x", 1) == 1);
  try {
    store.get_or_make(sample_identity(), any, [&] { return made = true, payload_of(1); }, toolchain);
  } catch (const sparsekiln::Error& error) {
    what = error.what();
  }
  CHECK(wait_for(child) == 0);
  CHECK_FALSE(made);
  CHECK(what.find("remembered") != std::string::npos);
  ::close(release[0]);
  ::close(release[1]);
}

TEST_CASE("if nothing can be written, everything is made and no process waits") {
  const ScratchFolder scratch;
  write_file(scratch.path() / "file", {});
  Store store(scratch.path() / "file");
  CHECK(store.get_or_make(sample_identity(), any, [] { return payload_of(10); }).made);
  CHECK_FALSE(store.get_or_make(sample_identity(), any, [] { return payload_of(10); }).made);
  CHECK(store.counters() == Counters{.hits = 1, .misses = 1, .failures = 1});
}
