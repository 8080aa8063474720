#include "runtime/isolated.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sparsekiln {
namespace {

using namespace std::chrono_literals;
using End = Isolated::End;
using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::size_t i) { return Bytes(i + 1, static_cast<std::byte>(i)); }

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

/// That this process has no child, living or dead.
bool has_no_child() {
  int status = 0;
  return ::waitpid(-1, &status, WNOHANG) == -1 && errno == ECHILD;
}

/// Runs everything, and checks that no process or descriptor is left and that each result comes once.
std::map<std::size_t, Isolated> run(std::size_t count, std::size_t at_once, std::chrono::milliseconds limit,
                                    const std::function<Bytes(std::size_t)>& work,
                                    const std::function<bool()>& stop = {}) {
  const std::size_t before = open_descriptors();
  std::map<std::size_t, Isolated> results;
  run_isolated(
      count, at_once, limit, work,
      [&](std::size_t i, Isolated result) { CHECK(results.emplace(i, std::move(result)).second); }, stop);
  CHECK(results.size() == count);
  CHECK(open_descriptors() == before);
  CHECK(has_no_child());
  return results;
}

/// A number that child processes share with this one.
class Shared {
 public:
  Shared() : memory_(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(memory_ != MAP_FAILED);
    new (memory_) std::atomic<int>(0);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { ::munmap(memory_, 4096); }
  [[nodiscard]] std::atomic<int>& operator*() const { return *static_cast<std::atomic<int>*>(memory_); }

 private:
  void* memory_;
};

TEST_CASE("each piece of work gives its own result") {
  for (const std::size_t at_once : {1, 3, 50}) {
    const auto results = run(20, at_once, 10s, bytes_of);
    for (const auto& [i, result] : results) {
      CAPTURE(result.message);
      CHECK(result.end == End::done);
      CHECK(result.bytes == bytes_of(i));
      CHECK(result.ms >= 0);
    }
  }
}

TEST_CASE("one at a time, results come in the order of the work") {
  std::vector<std::size_t> order;
  run_isolated(8, 1, 10s, bytes_of, [&](std::size_t i, const Isolated&) { order.push_back(i); }, {});
  CHECK(order == std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("several at a time, results come in the order in which they end") {
  std::vector<std::size_t> order;
  const auto work = [](std::size_t i) {
    std::this_thread::sleep_for((3 - i) * 150ms);
    return Bytes();
  };
  run_isolated(3, 3, 10s, work, [&](std::size_t i, const Isolated&) { order.push_back(i); }, {});
  CHECK(order == std::vector<std::size_t>{2, 1, 0});
}

TEST_CASE("no work is done at once") { CHECK(run(0, 4, 1s, bytes_of).empty()); }

TEST_CASE("a result of no bytes is one, and so is one far larger than a pipe holds") {
  const auto size_of = [](std::size_t i) { return i == 0 ? std::size_t{0} : std::size_t{8} << 20; };
  const auto work = [&](std::size_t i) {
    Bytes bytes(size_of(i));
    for (std::size_t at = 0; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(at * 7 + at / 251);
    return bytes;
  };
  for (const auto& [i, result] : run(3, 2, 20s, work)) {
    CHECK(result.end == End::done);
    CHECK(result.bytes == work(i));
  }
}

TEST_CASE("what a child does to memory stays with it") {
  int here = 1;
  run(1, 1, 10s, [&](std::size_t) {
    here = 2;
    return Bytes();
  });
  CHECK(here == 1);
}

TEST_CASE("an exception ends the child alone, with its message") {
  const auto results = run(3, 2, 10s, [](std::size_t i) -> Bytes {
    if (i == 0) throw std::runtime_error("no such instruction");
    if (i == 1) throw 3;
    return bytes_of(i);
  });
  CHECK(results.at(0).end == End::threw);
  CHECK(results.at(0).message == "no such instruction");
  CHECK(results.at(1).end == End::threw);
  CHECK(results.at(1).message.find("no known type") != std::string::npos);
  CHECK(results.at(2).end == End::done);
}

TEST_CASE("a child that crashes or exits ends alone, and how is said") {
  const auto results = run(5, 2, 10s, [](std::size_t i) {
    std::signal(SIGSEGV, SIG_DFL);  // doctest's handlers
    std::signal(SIGABRT, SIG_DFL);
    if (i == 0) ::raise(SIGSEGV);
    if (i == 1) ::_exit(3);
    if (i == 2) std::abort();
    if (i == 3) ::_exit(0);  // without a word
    return bytes_of(i);
  });
  for (std::size_t i = 0; i < 4; ++i) CHECK(results.at(i).end == End::crashed);
  CHECK(results.at(0).message.find("signal 11 (Segmentation fault)") != std::string::npos);
  CHECK(results.at(1).message.find("status 3") != std::string::npos);
  CHECK(results.at(2).message.find("signal 6") != std::string::npos);
  CHECK(results.at(4).end == End::done);
}

TEST_CASE("a child that hangs is killed at its time limit, and the others go on") {
  const auto begin = std::chrono::steady_clock::now();
  const auto results = run(4, 2, 200ms, [](std::size_t i) {
    if (i < 2)
      for (;;) ::pause();
    return bytes_of(i);
  });
  CHECK(std::chrono::steady_clock::now() - begin < 5s);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(results.at(i).end == End::late);
    CHECK(results.at(i).ms >= 200);
    CHECK(results.at(i).message.find("200 ms") != std::string::npos);
  }
  for (std::size_t i = 2; i < 4; ++i) CHECK(results.at(i).end == End::done);
}

TEST_CASE("a child that closes its pipe and then hangs is killed, too") {
  const auto begin = std::chrono::steady_clock::now();
  const auto results = run(1, 1, 200ms, [](std::size_t) -> Bytes {
    for (int descriptor = 3; descriptor < 256; ++descriptor) ::close(descriptor);
    std::this_thread::sleep_for(10s);
    ::_exit(0);
  });
  CHECK(std::chrono::steady_clock::now() - begin < 5s);
  CHECK(results.at(0).end == End::late);
}

TEST_CASE("all are killed when it is stopped, and what had not begun never does") {
  const Shared begun;
  const auto begin = std::chrono::steady_clock::now();
  const auto results = run(
      6, 2, 20s,
      [&](std::size_t) -> Bytes {
        ++*begun;
        for (;;) ::pause();
      },
      [&] { return (*begun).load() == 2; });
  CHECK(std::chrono::steady_clock::now() - begin < 5s);
  for (const auto& [i, result] : results) CHECK(result.end == End::stopped);
  CHECK((*begun).load() == 2);
}

TEST_CASE("no more run at once than were asked for") {
  const Shared running;
  const Shared most;
  run(12, 3, 10s, [&](std::size_t) {
    const int now = ++*running;
    int seen = (*most).load();
    while (seen < now && !(*most).compare_exchange_weak(seen, now)) {
    }
    std::this_thread::sleep_for(20ms);
    --*running;
    return Bytes();
  });
  CHECK((*most).load() <= 3);
  CHECK((*most).load() >= 2);
}

TEST_CASE("where taking a result throws, the children that are left are killed") {
  const std::size_t before = open_descriptors();
  const auto work = [](std::size_t i) -> Bytes {
    if (i > 0)
      for (;;) ::pause();
    return {};
  };
  CHECK_THROWS_AS(
      run_isolated(3, 3, 20s, work,
                   [](std::size_t, const Isolated&) { throw std::runtime_error("no more of this"); }, {}),
      std::runtime_error);
  CHECK(has_no_child());
  CHECK(open_descriptors() == before);
}

TEST_CASE("Ctrl-C at the terminal does not end a child: its parent decides") {
  const auto results = run(1, 1, 10s, [](std::size_t i) {
    ::raise(SIGINT);
    return bytes_of(i);
  });
  CHECK(results.at(0).end == End::done);
}

}  // namespace
}  // namespace sparsekiln
