#include "cache/lock.h"

#include <csignal>
#include <optional>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "processes.h"
#include "scratch_folder.h"

using sparsekiln::cache::Fate;
using sparsekiln::cache::fate_of;
using sparsekiln::cache::Folder;
using sparsekiln::cache::Holder;
using sparsekiln::cache::KeyLock;
using sparsekiln::cache::Patience;
namespace fs = std::filesystem;
using namespace std::chrono_literals;

namespace {

constexpr const char* kName = "ab.lock";
const Patience kLong{10min, 10min}, kShort{50ms, 20ms};

bool never() { return false; }

struct Scene {
  ScratchFolder scratch;
  Folder folder{scratch.path()};
  fs::path file = scratch.path() / "ab" / kName;

  void lies_there(std::string_view text) const {
    folder.publish(kName, bytes_of(text));
    REQUIRE(fs::exists(file));
  }
  [[nodiscard]] std::size_t files() const { return files_with(scratch.path(), "").size(); }
};

/// A holder whose process has ended.
Holder dead_holder() {
  Holder holder = Holder::self();
  holder.process = in_child([] { return 0; });
  wait_for(static_cast<pid_t>(holder.process));
  return holder;
}

}  // namespace

TEST_CASE("a lock is a file that names its holder, and is removed with it") {
  const Scene scene;
  {
    const KeyLock lock = KeyLock::acquire(scene.folder, kName, kLong, never);
    CHECK(lock.held());
    const auto bytes = read_file(scene.file);
    const auto holder = Holder::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    REQUIRE(holder.has_value());
    CHECK(holder->process == ::getpid());
    CHECK(holder->host == Holder::self().host);
    CHECK(holder->started == Holder::self().started);
    CHECK(fate_of(*holder) == Fate::alive);
  }
  CHECK(scene.files() == 0);
}

TEST_CASE("a lock that was moved is held only by its new object") {
  const Scene scene;
  std::optional<KeyLock> kept;
  {
    KeyLock lock = KeyLock::acquire(scene.folder, kName, kLong, never);
    kept.emplace(std::move(lock));
  }
  CHECK(kept->held());
  CHECK(fs::exists(scene.file));
  kept.reset();
  CHECK(scene.files() == 0);
}

TEST_CASE("a process waits for a lock of another one until the result has arrived") {
  const Scene scene;
  const KeyLock first = KeyLock::acquire(scene.folder, kName, kLong, never);
  int asked = 0;
  const KeyLock second = KeyLock::acquire(scene.folder, kName, kLong, [&] { return ++asked == 3; });
  CHECK_FALSE(second.held());
  CHECK(asked == 3);
}

TEST_CASE("a process that has waited long enough for a live holder continues without the lock") {
  const Scene scene;
  const KeyLock first = KeyLock::acquire(scene.folder, kName, kLong, never);
  {
    const KeyLock second = KeyLock::acquire(scene.folder, kName, kShort, never);
    CHECK_FALSE(second.held());
  }
  CHECK(fs::exists(scene.file));
}

TEST_CASE("a lock whose holder is dead is taken over at once") {
  const Scene scene;
  scene.lies_there(dead_holder().text());
  const KeyLock lock = KeyLock::acquire(scene.folder, kName, kLong, never);
  CHECK(lock.held());
  CHECK(scene.files() == 1);
}

TEST_CASE("a lock whose holder was killed, but not yet collected by its parent, is taken over at once") {
  const Scene scene;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = in_child([&] {
    const KeyLock lock = KeyLock::acquire(scene.folder, kName, kLong, never);
    const char held = lock.held() ? 'y' : 'n';
    if (::write(ready[1], &held, 1) == 1) ::pause();
    return 1;
  });
  char held = 'n';
  REQUIRE(::read(ready[0], &held, 1) == 1);
  CHECK(held == 'y');
  ::kill(child, SIGKILL);
  CHECK(KeyLock::acquire(scene.folder, kName, kLong, never).held());
  CHECK(WIFSIGNALED(wait_for(child)));
  ::close(ready[0]);
  ::close(ready[1]);
  CHECK(scene.files() == 0);
}

TEST_CASE("a lock whose holder's process id belongs to another process by now is taken over at once") {
  const Scene scene;
  Holder before = Holder::self();
  before.started += 1;
  scene.lies_there(before.text());
  CHECK(KeyLock::acquire(scene.folder, kName, kLong, never).held());
}

TEST_CASE("a lock from another machine is taken over if it does not change during the waiting time") {
  const Scene scene;
  Holder elsewhere = dead_holder();
  elsewhere.host = "elsewhere/1";
  CHECK(fate_of(elsewhere) == Fate::unknown);
  scene.lies_there(elsewhere.text());
  int asked = 0;
  const KeyLock lock = KeyLock::acquire(scene.folder, kName, kShort, [&] { return ++asked, false; });
  CHECK(lock.held());
  CHECK(asked > 0);
  CHECK(scene.files() == 1);
}

TEST_CASE("a lock from another machine that keeps changing is left, and the process continues without it") {
  const Scene scene;
  Holder elsewhere = dead_holder();
  elsewhere.host = "elsewhere/1";
  scene.lies_there(elsewhere.text());
  int changes = 0;
  const KeyLock lock = KeyLock::acquire(scene.folder, kName, kShort, [&] {
    elsewhere.mark = fmt::format("{:016x}", ++changes);
    scene.lies_there(elsewhere.text());
    return false;
  });
  CHECK_FALSE(lock.held());
  CHECK(fs::exists(scene.file));
}

TEST_CASE("a lock without a holder is taken over after the time that a holder has to write its name") {
  const Scene scene;
  for (const std::string_view text : {"", "sparsekiln-lock-1 ", "garbage", "sparsekiln-lock-2 a 1 1 f\n"}) {
    CAPTURE(text);
    scene.lies_there(text);
    CHECK(KeyLock::acquire(scene.folder, kName, {10min, 1ms}, never).held());
    CHECK(scene.files() == 0);
  }
}

TEST_CASE("a link where a lock should be is replaced, and its target is not changed") {
  const Scene scene;
  scene.lies_there("");
  fs::remove(scene.file);
  write_file(scene.scratch.path() / "precious", bytes_of("precious"));
  fs::create_symlink(scene.scratch.path() / "precious", scene.file);
  CHECK(KeyLock::acquire(scene.folder, kName, {10min, 1ms}, never).held());
  CHECK(read_file(scene.scratch.path() / "precious") == bytes_of("precious"));
}

TEST_CASE("without a lock, a process continues in a folder that allows none") {
  const Scene scene;
  write_file(scene.scratch.path() / "file", {});
  CHECK_FALSE(KeyLock::acquire(Folder(scene.scratch.path() / "file"), kName, kLong, never).held());
  CHECK_FALSE(KeyLock::acquire(Folder("/proc/sparsekiln"), kName, kLong, never).held());
}

TEST_CASE("a lock that was taken over is not removed by its former holder") {
  const Scene scene;
  Holder other = Holder::self();
  {
    const KeyLock lock = KeyLock::acquire(scene.folder, kName, kLong, never);
    scene.lies_there(other.text());
  }
  CHECK(read_file(scene.file) == bytes_of(other.text()));
}

TEST_CASE("a holder is read back unchanged, and nothing else is accepted") {
  const Holder self = Holder::self();
  const std::string text = self.text();
  const auto again = Holder::parse(text);
  REQUIRE(again.has_value());
  CHECK(again->text() == text);
  for (std::size_t length = 0; length < text.size(); ++length) {
    CAPTURE(length);
    CHECK_FALSE(Holder::parse(text.substr(0, length)).has_value());
  }
  CHECK_FALSE(Holder::parse(text + " ").has_value());
  CHECK_FALSE(Holder::parse("sparsekiln-lock-1 host 0 1 mark\n").has_value());
  CHECK_FALSE(Holder::parse("sparsekiln-lock-1 host -1 1 mark\n").has_value());
  CHECK_FALSE(Holder::parse("sparsekiln-lock-1 host 1x 1 mark\n").has_value());
}
