#include "cache/trim.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>

#include "cache/store.h"
#include "cache/totals.h"
#include "processes.h"
#include "scratch_folder.h"
#include "stamps.h"

using namespace sparsekiln::cache;
namespace fs = std::filesystem;
using namespace std::chrono_literals;

namespace {

const Stamp kNow{std::chrono::seconds(1'800'000'000)};
const std::string kKey(32, 'a');

File listed(const std::string& suffix, std::uintmax_t bytes, Stamp stamp) {
  File file;
  file.kind = kind_of(kKey + suffix);
  file.name = kKey + suffix;
  file.bytes = bytes;
  file.stamp = stamp;
  return file;
}

/// `count` entries of 100 bytes; the n-th was last used n minutes ago.
std::vector<File> entries(int count) {
  std::vector<File> files;
  for (int n = 0; n < count; ++n) files.push_back(listed(".entry", 100, kNow - n * 1min));
  return files;
}

/// A folder with `count` whole entries of 1000 bytes of payload, the n-th of which was used n hours ago.
void fill(Store& store, const Folder& folder, int count, WallClock::duration ahead = 0h) {
  for (int n = 0; n < count; ++n) {
    const auto identity = sample_identity(std::to_string(n));
    folder.publish(store.file(identity).filename(), encode(identity, payload_of(1000, unsigned(n))));
    stamp_file(store.file(identity), WallClock::now() - n * 1h + ahead);
  }
}

}  // namespace

TEST_CASE("a folder within its caps loses only stale files") {
  std::vector<File> files = entries(10);
  CHECK(surplus(files, {1000, 10}, kNow).empty());
  const std::pair<const char*, WallClock::duration> stale[] = {{".entry.0123456789abcdef.tmp", 1h},
                                                               {".entry.lock", 1h},
                                                               {".entry.failed", 1h},
                                                               {".entry.bad", 24h * 7},
                                                               {".entry.failed.bad", 24h * 7}};
  for (const auto& [suffix, age] : stale) {
    CAPTURE(suffix);
    CHECK(surplus({listed(suffix, 1, kNow - age + 1s)}, {1000, 10}, kNow).empty());
    CHECK(surplus({listed(suffix, 1, kNow - age)}, {1000, 10}, kNow).size() == 1);
    CHECK(surplus({listed(suffix, 1, kNow + 2h)}, {1000, 10}, kNow).size() == 1);
    CHECK(surplus({listed(suffix, 1, kNow + 10min)}, {1000, 10}, kNow).empty());
  }
}

TEST_CASE("a cap that is exceeded is trimmed to 90 %, oldest stamp first") {
  for (const Caps caps : {Caps{1900, 1000}, Caps{1'000'000, 19}}) {
    CAPTURE(caps.files);
    const auto going = surplus(entries(20), caps, kNow);
    REQUIRE(going.size() == (caps.files == 19 ? 2 : 3));  // 18 files; 1710 bytes
    for (const File& file : going) CHECK(file.stamp < kNow - 16min);
  }
  CHECK(surplus(entries(20), {2000, 20}, kNow).empty());
}

TEST_CASE(
    "failed and bad files, locks and temporary files count, and the first two are removed by age like "
    "entries") {
  std::vector<File> files = entries(10);
  files.push_back(listed(".entry.bad", 100, kNow - 2min));
  files.push_back(listed(".entry.failed", 100, kNow - 30min));
  files.push_back(listed(".entry.lock", 100, kNow - 40min));
  files.push_back(listed(".entry.00.tmp", 100, kNow - 50min));
  const auto going = surplus(files, {1'000'000, 13}, kNow);  // 14 files to 12
  REQUIRE(going.size() == 2);
  CHECK(going[0].kind == FileKind::failed);
  CHECK(going[1].stamp == kNow - 9min);
}

TEST_CASE("files that are not the store's are neither counted nor removed") {
  std::vector<File> files = entries(3);
  for (int n = 0; n < 100; ++n) files.push_back(listed(".elf", 1'000'000, kNow - 1000h));
  CHECK(surplus(files, {300, 3}, kNow).empty());
}

TEST_CASE("an entry with a stamp in the future counts as the oldest") {
  std::vector<File> files = entries(10);
  files[0].stamp = kNow + 24h;
  const auto going = surplus(files, {1000, 9}, kNow);
  REQUIRE(going.size() == 1);
  CHECK(going[0].stamp == kNow + 24h);
}

TEST_CASE("trim removes the oldest entries and leaves the others intact") {
  const ScratchFolder scratch;
  const Folder folder(scratch.path());
  Store store(scratch.path());
  fill(store, folder, 20);
  const Removed removed = trim(folder, {1'000'000, 10});
  CHECK(removed.files == 11);
  CHECK(removed.bytes > 11'000);
  for (int n = 0; n < 20; ++n) {
    CAPTURE(n);
    CHECK(store.get(sample_identity(std::to_string(n))).has_value() == (n < 9));
  }
}

TEST_CASE("a hit renews the stamp of an entry, without a second write within the hour") {
  const ScratchFolder scratch;
  Store store(scratch.path());
  store.put(sample_identity(), payload_of(10));
  const fs::path file = store.file(sample_identity());
  for (const auto ago : {120min, -120min, -5min}) {
    stamp_file(file, WallClock::now() - ago);
    const Stamp before = WallClock::now();
    CHECK(store.get(sample_identity()).has_value());
    CHECK(stamp_of_file(file) >= before - 1s);
    CHECK(stamp_of_file(file) <= WallClock::now());
  }
  const Stamp recent = WallClock::now() - 50min;
  stamp_file(file, recent);
  CHECK(store.get(sample_identity()).has_value());
  CHECK(stamp_of_file(file) == recent);
}

TEST_CASE("an entry used or published since it was listed is not removed") {
  const ScratchFolder scratch;
  const Folder folder(scratch.path());
  Store store(scratch.path());
  fill(store, folder, 3);
  const auto files = list(folder);
  REQUIRE(files.size() == 3);
  stamp_file(store.file(sample_identity("0")), WallClock::now() - 100h);
  folder.publish(store.file(sample_identity("1")).filename(),
                 encode(sample_identity("1"), payload_of(1000, 1)));
  CHECK(remove(folder, files).files == 1);
  CHECK(store.get(sample_identity("0")).has_value());
  CHECK(store.get(sample_identity("1")).has_value());
  CHECK_FALSE(store.get(sample_identity("2")).has_value());
}

TEST_CASE("a store keeps its folder near its caps by itself") {
  const ScratchFolder scratch;
  Store store(scratch.path(), {}, {.caps = Caps{1'000'000, 40}, .patience = {}});
  for (int n = 0; n < 200; ++n) {
    store.put(sample_identity(std::to_string(n)), payload_of(100, unsigned(n)));
    if (n % 2 == 1) store.wait_for_trim();  // 5 % of 40
  }
  const auto left = files_with(scratch.path(), ".entry").size();
  CHECK(left <= 42);
  CHECK(left >= 36);
}

TEST_CASE("a trim is due ten minutes after the last, and if its stamp is in the future") {
  const ScratchFolder scratch;
  const Folder folder(scratch.path() / "store");
  CHECK_FALSE(trim_is_due(folder, WallClock::now()));  // there is no folder
  Store store(folder.path());
  store.put(sample_identity(), payload_of(10));
  store.wait_for_trim();
  const Stamp last = stamp_of_file(folder.path() / "trimmed");
  CHECK_FALSE(trim_is_due(folder, last + 9min));
  CHECK(trim_is_due(folder, last + 10min));
  CHECK(trim_is_due(folder, last - 1min));
}

TEST_CASE("a put in a new process trims if no process has for ten minutes") {
  const ScratchFolder scratch;
  const Folder folder(scratch.path());
  {
    Store store(scratch.path());
    fill(store, folder, 20);
  }
  const auto put_one = [&] {
    Store store(scratch.path(), {}, {.caps = Caps{1'000'000, 10}, .patience = {}});
    // As a process that ends at once: the trim is given its time.
    store.put(sample_identity("new"), payload_of(10));
  };
  put_one();
  CHECK(files_with(scratch.path(), ".entry").size() == 9);
}

TEST_CASE("two processes that trim at once, while others write and read, do no harm") {
  const ScratchFolder scratch;
  const Folder folder(scratch.path());
  Store store(scratch.path());
  fill(store, folder, 400);
  std::vector<pid_t> children;
  for (int trimmer = 0; trimmer < 2; ++trimmer)
    children.push_back(in_child([&] {
      for (const std::uint64_t files : {300u, 200u, 100u, 50u}) trim(folder, {1u << 30, files});
      return 0;
    }));
  children.push_back(in_child([&] {
    Store writer(scratch.path());
    for (int n = 0; n < 400; ++n)
      writer.put(sample_identity(std::to_string(n)), payload_of(1000, unsigned(n)));
    return writer.counters().failures == 0 ? 0 : 1;
  }));
  int wrong = 0;
  for (int n = 0; n < 2000; ++n) {
    const auto payload = store.get(sample_identity(std::to_string(n % 400)));
    if (payload && *payload != payload_of(1000, unsigned(n % 400))) ++wrong;
  }
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  CHECK(wrong == 0);
  CHECK(store.counters().quarantined == 0);
}

TEST_CASE("clear removes what it is asked to, and never a lock or temporary file in use") {
  const ScratchFolder scratch;
  const Folder folder(scratch.path());
  Store store(scratch.path());
  fill(store, folder, 3);
  const std::string name = store.file(sample_identity("0")).filename();
  for (const char* suffix : {".failed", ".bad", ".lock", ".0123456789abcdef.tmp"})
    folder.publish(name + suffix, bytes_of("x"));
  write_file(scratch.path() / "mine", bytes_of("x"));
  CHECK(clear(folder, Clear::failed).files == 1);
  CHECK(clear(folder, Clear::bad).files == 1);
  CHECK(clear(folder, Clear::all).files == 3);
  std::set<std::string> left;
  for (const File& file : list(folder)) left.insert(file.name);
  CHECK(left == std::set<std::string>{name + ".lock", name + ".0123456789abcdef.tmp", "mine"});
  stamp_file(store.file(sample_identity("0")).string() + ".lock", WallClock::now() - 2h);
  CHECK(clear(folder, Clear::all).files == 1);
}
