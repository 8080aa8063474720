// The store with processes that end at any point, disks that are full, and folders that are not what they
// should be. In every case a caller must get the right result.

#include <array>
#include <csignal>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <sparsekiln/binary.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "cache/entry.h"
#include "cache/listing.h"
#include "cache/store.h"
#include "cache/trim.h"
#include "tests/cache/processes.h"
#include "tests/cache/scratch_folder.h"
#include "tests/cache/stamps.h"
#include "tests/faults/stepper.h"

using namespace sparsekiln;
using namespace sparsekiln::cache;
namespace fs = std::filesystem;
using namespace std::chrono_literals;

namespace {

// A lock that remained would be waited for until the test times out.
const Limits kLimits{.caps = Caps{}, .patience = {1h, 1ms}};

bool any(std::span<const std::byte>) { return true; }

std::vector<std::byte> made_payload() { return payload_of(3000, 7); }

/// What a process that needs one kernel does.
bool answer_is_right(const fs::path& folder) {
  Store store(folder, {}, kLimits);
  return store.get_or_make(sample_identity(), any, made_payload).payload == made_payload();
}

std::vector<File> locks_in(const fs::path& folder) {
  std::vector<File> files = list(Folder(folder));
  std::erase_if(files, [](const File& file) { return file.kind != FileKind::lock; });
  return files;
}

void check_nothing_lasts(const fs::path& folder) {
  for (const File& file : locks_in(folder)) {
    const auto bytes = read_file(file.path);
    const auto holder = Holder::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    CHECK((!holder || fate_of(*holder) == Fate::gone));
  }
  Store reader(folder, {}, kLimits);
  const auto found = reader.get(sample_identity());
  CHECK((!found || *found == made_payload()));
  CHECK(answer_is_right(folder));
  CHECK(Store(folder).get(sample_identity()) == made_payload());
  // If the writer was killed between publishing and releasing, its lock remains until that key is made again.
  fs::remove(reader.file(sample_identity()));
  CHECK(answer_is_right(folder));
  CHECK(locks_in(folder).empty());
}

/// What a folder contains before the writer starts: nothing, a damaged entry, or the lock of a dead process.
enum class Before { nothing, damaged, locked };

void prepare(Before before, const fs::path& folder) {
  if (before == Before::nothing) return;
  const Folder opened(folder);
  const std::string name = sample_identity().key().hex() + ".entry";
  if (before == Before::damaged) opened.publish(name, bytes_of("SPKILN\r\n"));
  if (before != Before::locked) return;
  Holder dead = Holder::self();
  dead.started += 1;
  const std::string text = dead.text();
  opened.publish(name + ".lock", bytes_of(text));
}

/// Kills a writer after its n-th system call and before the next; false if it had ended by then.
bool kill_after(int n, Before before) {
  const ScratchFolder scratch;
  const fs::path folder = scratch.path() / "store";
  prepare(before, folder);
  {
    Stepper writer([&] { static_cast<void>(answer_is_right(folder)); });
    for (int stop = 0; stop < 2 * n; ++stop)
      if (!writer.step()) return false;
  }
  INFO("killed after call ", n, " of scene ", static_cast<int>(before));
  const int bad_before = before == Before::damaged ? 1 : 0;
  check_nothing_lasts(folder);
  CHECK(files_with(folder, ".bad").size() <= static_cast<std::size_t>(bad_before));
  return true;
}

/// Kills a writer that replaces an entry after its n-th system call and before the next; false if it had
/// ended by then.
bool kill_replacing_after(int n) {
  const ScratchFolder scratch;
  const auto old = payload_of(1000, 1), replaced = payload_of(10'000, 2), later = payload_of(5000, 3);
  Store(scratch.path()).put(sample_identity(), old);
  {
    Stepper writer([&] { Store(scratch.path(), {}, kLimits).put(sample_identity(), replaced); });
    for (int stop = 0; stop < 2 * n; ++stop)
      if (!writer.step()) return false;
  }
  INFO("killed after call ", n);
  Store store(scratch.path(), {}, kLimits);
  const auto found = store.get(sample_identity());
  CHECK((found == old || found == replaced));
  store.put(sample_identity(), later);
  CHECK(Store(scratch.path()).get(sample_identity()) == later);
  CHECK(store.counters().quarantined == 0);
  return true;
}

Options small_kernel(int batch, const fs::path& folder) {
#ifdef SPARSEKILN_CPU
  const std::string target = "cpu";
#else
  const std::string target = "sm_80";
#endif
  return {.block = {16, 16}, .batch = batch, .target = target, .cache_dir = folder};
}

std::string digest_of(const Built& built) {
  return Digest::of(std::span<const std::byte>(serialize(*built.binary))).hex();
}

}  // namespace

TEST_CASE("sixteen processes that ask for the same eight kernels at once compile eight, and all get them") {
  constexpr int kProcesses = 16, kKernels = 8;
  const ScratchFolder scratch;
  const Layout layout = patterns::random(4, 4, 0.5, 1);
  std::array<int, 2> start{};
  REQUIRE(::pipe(start.data()) == 0);
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process)
    children.push_back(in_child([&, process] {
      char none = 0;
      ::close(start[1]);
      // until no process holds the other end: all start together
      if (::read(start[0], &none, 1) != 0) return 1;
      std::ofstream out(scratch.path() / std::to_string(process));
      for (int n = 0; n < kKernels; ++n) {
        const int batch = 1 + (n + process) % kKernels;
        const Built built = build(layout, small_kernel(batch, scratch.path() / "store"));
        out << batch << ' ' << name(built.from) << ' ' << digest_of(built) << '\n';
      }
      return out.flush() ? 0 : 1;
    }));
  ::close(start[0]);
  ::close(start[1]);
  for (const pid_t child : children) CHECK(wait_for(child) == 0);

  int compiled = 0, results = 0;
  std::map<int, std::string> right;
  for (int batch = 1; batch <= kKernels; ++batch)
    right[batch] = digest_of(build(layout, small_kernel(batch, scratch.path() / "reference")));
  for (int process = 0; process < kProcesses; ++process) {
    std::ifstream in(scratch.path() / std::to_string(process));
    int batch = 0;
    std::string from, digest;
    while (in >> batch >> from >> digest) {
      CHECK(digest == right[batch]);
      compiled += from == "compiled" ? 1 : 0;
      ++results;
    }
  }
  CHECK(results == kProcesses * kKernels);
  CHECK(compiled == kKernels);
  CHECK(files_with(scratch.path() / "store", ".lock").empty());
}

TEST_CASE("a writer killed at any system call leaves no bad entry and no lock that lasts") {
  int kills = 0;
  for (const Before before : {Before::nothing, Before::damaged, Before::locked}) {
    const int stride = before == Before::nothing ? 1 : 2;  // the others differ in a few calls
    int n = 1;
    for (; kill_after(n, before); n += stride) ++kills;
    REQUIRE(n > 10);  // else nothing was traced
  }
  CHECK(kills >= 200);
  MESSAGE("killed " << kills << " times");
}

TEST_CASE("a writer killed at any system call while it replaces an entry leaves the old one or the new one") {
  int n = 1;
  while (kill_replacing_after(n)) ++n;
  CHECK(n > 10);  // else nothing was traced
}

TEST_CASE("a kernel's entry with any byte flipped, or shortened to any length, is never taken for a kernel") {
  const ScratchFolder scratch;
  const Built built = build(patterns::random(4, 4, 0.5, 1), small_kernel(1, scratch.path()));
  const std::vector<std::byte> payload = serialize(*built.binary);
  const std::vector<std::byte> entry = encode(sample_identity(), payload);
  std::size_t taken = 0;
  for (std::size_t i = 0; i < entry.size(); ++i) {
    std::vector<std::byte> changed = entry;
    changed[i] ^= std::byte{0x41};
    Damage damage = Damage::none;
    taken += decode(changed, damage).has_value() ? 1 : 0;
    // Exactly as long as the shortened payload, so that AddressSanitizer detects a read beyond its end.
    const std::vector<std::byte> cut(entry.begin(), entry.begin() + static_cast<std::ptrdiff_t>(i));
    taken += decode(cut, damage).has_value() ? 1 : 0;
  }
  CHECK(taken == 0);
}

TEST_CASE(
    "a payload with any byte flipped, or shortened to any length, is refused or read within its bounds") {
  const ScratchFolder scratch;
  const Built built = build(patterns::random(4, 4, 0.5, 1), small_kernel(1, scratch.path()));
  const std::vector<std::byte> payload = serialize(*built.binary);
  // Compressed bytes have several forms: what was read is written in one of them, and read as the same.
  const auto read = [](const std::vector<std::byte>& bytes) {
    try {
      const std::vector<std::byte> written = serialize(deserialize(bytes));
      return serialize(deserialize(written)) == written;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::cache;
    }
  };
  for (std::size_t i = 0; i < payload.size(); ++i) {
    CAPTURE(i);
    std::vector<std::byte> changed = payload;
    changed[i] ^= std::byte{0x41};
    REQUIRE(read(changed));
    REQUIRE(read({payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(i)}));
  }
}

TEST_CASE("a full disk costs compiles, and never a result") {
  const ScratchFolder scratch;
  const fs::path folder = scratch.path() / "disk";
  fs::create_directory(folder);
  const int status = wait_for(in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 77;
    ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount("none", folder.c_str(), "tmpfs", 0, "size=128k,mode=0700") != 0) return 77;
    int wrong = 0;
    {
      Store store(folder, {}, kLimits);
      for (int round = 0; round < 2; ++round)
        for (unsigned n = 0; n < 40; ++n) {
          const auto make = [n] { return payload_of(10'000, n); };
          wrong += store.get_or_make(sample_identity(std::to_string(n)), any, make).payload != make() ? 1 : 0;
        }
      const Counters counters = store.counters();
      if (counters.failures == 0 || counters.stores == 0 || counters.quarantined != 0) return 2;
    }
    if (!files_with(folder, ".tmp").empty() || !files_with(folder, ".lock").empty()) return 3;
    // Another process, while the disk is still full.
    Store next(folder, {}, kLimits);
    for (unsigned n = 0; n < 40; ++n) {
      const auto make = [n] { return payload_of(10'000, n); };
      wrong += next.get_or_make(sample_identity(std::to_string(n)), any, make).payload != make() ? 1 : 0;
    }
    return wrong == 0 ? 0 : 1;
  }));
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    MESSAGE(
        "no file system may be mounted here: a full disk is tested by a limit on the size of files alone");
    return;
  }
  MESSAGE("a tmpfs of 128 KiB was full");
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a folder mounted read-only serves its entries, and the others are made") {
  const ScratchFolder scratch;
  const fs::path folder = scratch.path() / "store";
  Store(folder).put(sample_identity(), made_payload());
  const int status = wait_for(in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 77;
    ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount(folder.c_str(), folder.c_str(), nullptr, MS_BIND, nullptr) != 0) return 77;
    if (::mount("none", folder.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) return 77;
    Store store(folder, {}, kLimits);
    const auto not_made = []() -> std::vector<std::byte> { return {}; };
    if (store.get_or_make(sample_identity(), any, not_made).payload != made_payload()) return 1;
    const auto got = store.get_or_make(sample_identity("new"), any, made_payload);
    return got.made && got.payload == made_payload() && !store.on_disk() ? 0 : 2;
  }));
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    MESSAGE("nothing may be mounted here: a read-only folder is tested by its mode alone");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("whatever the folder is, the result is right") {
  const ScratchFolder scratch;
  const fs::path folder = scratch.path() / "store", other = scratch.path() / "other";
  const std::string entry = sample_identity().key().hex() + ".entry";
  const fs::path shard = folder / entry.substr(0, 2);
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  fs::create_directory(other);
  fs::permissions(other, fs::perms::owner_all);
  SUBCASE("empty") {}
  SUBCASE("not there") { fs::remove(folder); }
  SUBCASE("a file") {
    fs::remove(folder);
    write_file(folder, bytes_of("precious"));
  }
  SUBCASE("a link to a folder of the user") {
    fs::remove(folder);
    fs::create_directory_symlink(other, folder);
  }
  SUBCASE("a link to nothing") {
    fs::remove(folder);
    fs::create_directory_symlink("nothing", folder);
  }
  SUBCASE("with a link where a shard should be") { fs::create_directory_symlink(other, shard); }
  SUBCASE("with a file where a shard should be") { write_file(shard, {}); }
  SUBCASE("writable by everyone") { ::chmod(folder.c_str(), 0777); }
  SUBCASE("someone else's") {
    if (::chown(folder.c_str(), 12345, 12345) != 0) {
      MESSAGE("only root may give a folder away: not tested");
      return;
    }
  }
  SUBCASE("with a folder where the lock should be") {
    fs::create_directories(shard / (entry + ".lock") / "inside");
    fs::permissions(shard, fs::perms::owner_all);
  }
  SUBCASE("with a folder where the failure should be") {
    fs::create_directories(shard / (entry + ".failed"));
    fs::permissions(shard, fs::perms::owner_all);
  }
  CHECK(answer_is_right(folder));
  CHECK(answer_is_right(folder));
}

TEST_CASE("when the clock was set back, everything in the folder can still be used or removed") {
  const ScratchFolder scratch;
  const Folder folder(scratch.path());
  for (unsigned n = 0; n < 10; ++n)
    Store(scratch.path()).put(sample_identity(std::to_string(n)), payload_of(9, n));
  const std::string name = Store(scratch.path()).file(sample_identity("0")).filename();
  for (const char* suffix : {".lock", ".failed", ".bad", ".0123456789abcdef.tmp"})
    folder.publish(name + suffix, bytes_of("from the future"));
  for (const File& file : list(folder)) stamp_file(file.path, WallClock::now() + 24h * 365);

  Store store(scratch.path(), {}, {.caps = Caps{1u << 30, 9}, .patience = {1h, 1ms}});
  CHECK(store.get_or_make(sample_identity("0"), any, made_payload).payload == payload_of(9, 0));
  CHECK(store.get_or_make(sample_identity("new"), any, made_payload).payload == made_payload());
  store.wait_for_trim();
  // The two that were used now are the youngest; what cannot be young any more is gone.
  CHECK(store.get(sample_identity("0")) == payload_of(9, 0));
  CHECK(store.get(sample_identity("new")) == made_payload());
  const std::size_t kept = files_with(scratch.path(), ".entry").size();
  CHECK(kept <= 9);
  CHECK(kept >= 7);  // a lock and a temporary file count as well, while they are there
  CHECK(files_with(scratch.path(), ".entry.").empty());
}

TEST_CASE("every result is right while a trimmer keeps removing everything") {
  const ScratchFolder scratch;
  const pid_t trimmer = in_child([&] {
    for (;;) static_cast<void>(trim(Folder(scratch.path()), {1, 1}));
    return 0;
  });
  std::vector<pid_t> readers;
  for (int reader = 0; reader < 2; ++reader)
    readers.push_back(in_child([&] {
      Store store(scratch.path(), {}, kLimits);
      for (unsigned round = 0; round < 1000; ++round) {
        const unsigned n = round % 8;
        const auto make = [n] { return payload_of(1000, n); };
        if (store.get_or_make(sample_identity(std::to_string(n)), any, make).payload != make()) return 1;
      }
      return store.counters().quarantined == 0 ? 0 : 2;
    }));
  for (const pid_t reader : readers) CHECK(wait_for(reader) == 0);
  ::kill(trimmer, SIGKILL);
  CHECK(WIFSIGNALED(wait_for(trimmer)));
}
