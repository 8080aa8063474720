// Folders that cannot be used: memory only, and one warning.

#include <cstdlib>

#include <doctest/doctest.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/store.h"
#include "scratch_folder.h"
#include "tests/system/file_size_limit.h"

using sparsekiln::cache::Store;
namespace fs = std::filesystem;

namespace {

/// A store that counts its warnings.
struct Watched {
  explicit Watched(const fs::path& folder)
      : store(folder, [this](const std::string& warning) { warnings.push_back(warning); }) {}

  std::vector<std::string> warnings;
  Store store;
};

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// The store keeps everything in memory and says so once: with the path, the reason and what would work.
void check_memory_only(const fs::path& folder, const fs::path& named, std::string_view reason) {
  Watched watched(folder);
  for (const unsigned seed : {1u, 2u, 3u}) {
    const auto identity = sample_identity(std::to_string(seed));
    CHECK_FALSE(watched.store.get(identity).has_value());
    watched.store.put(identity, payload_of(1000, seed));
    CHECK(watched.store.get(identity) == payload_of(1000, seed));
  }
  CHECK(watched.store.counters().failures == 3);
  CHECK(watched.store.counters().stores == 0);
  CHECK(watched.store.counters().hits == 3);
  CHECK_FALSE(watched.store.on_disk());
  CHECK(contains(watched.store.why(), reason));
  REQUIRE(watched.warnings.size() == 1);
  const std::string& warning = watched.warnings.front();
  CAPTURE(warning);
  CHECK(contains(warning, named.string()));
  CHECK(contains(warning, reason));
  CHECK(contains(warning, "SPARSEKILN_CACHE_DIR"));
}

}  // namespace

TEST_CASE("a folder that is a file leaves memory only") {
  const ScratchFolder scratch;
  write_file(scratch.path() / "file", bytes_of("precious"));
  check_memory_only(scratch.path() / "file", scratch.path() / "file", "Not a directory");
  check_memory_only(scratch.path() / "file" / "below", scratch.path() / "file" / "below", "Not a directory");
  CHECK(read_file(scratch.path() / "file") == bytes_of("precious"));
}

TEST_CASE("a folder that cannot be made leaves memory only") {
  const fs::path folder = "/proc/sparsekiln/store";
  int warnings = 0;
  Store store(folder, [&](const std::string&) { ++warnings; });
  store.put(sample_identity(), payload_of(100));
  CHECK(store.get(sample_identity()) == payload_of(100));
  CHECK_FALSE(store.on_disk());
  CHECK(warnings == 1);
}

TEST_CASE("a folder that others can write is not used, by any way to it") {
  const ScratchFolder scratch;
  const fs::path folder = scratch.path() / "open";
  const std::string key = sample_identity("1").key().hex();
  fs::create_directory(folder);
  Watched before(folder);
  ::chmod(folder.c_str(), 0700);
  before.store.put(sample_identity("1"), payload_of(1000, 7));
  before.store.wait_for_trim();
  const std::size_t entries = files_with(folder, "").size();

  SUBCASE("by everyone") {
    ::chmod(folder.c_str(), 0777);
    check_memory_only(folder, folder, "others may write to it (mode 0777)");
  }
  SUBCASE("by the group") {
    ::chmod(folder.c_str(), 0770);
    check_memory_only(folder, folder, "others may write to it (mode 0770)");
  }
  SUBCASE("through a link") {
    ::chmod(folder.c_str(), 0777);
    fs::create_directory_symlink(folder, scratch.path() / "link");
    check_memory_only(scratch.path() / "link", scratch.path() / "link", "others may write to it (mode 0777)");
  }
  CHECK(files_with(folder, "").size() == entries);
}

TEST_CASE("a folder within the folder that others can write, or that is a link, is not used") {
  const ScratchFolder scratch;
  Watched watched(scratch.path());
  watched.store.put(sample_identity(), payload_of(100));
  const fs::path shard = watched.store.file(sample_identity()).parent_path();
  SUBCASE("writable") { ::chmod(shard.c_str(), 0777); }
  SUBCASE("a link") {
    fs::rename(shard, scratch.path() / "elsewhere");
    fs::create_directory_symlink(scratch.path() / "elsewhere", shard);
  }
  CHECK_FALSE(watched.store.get(sample_identity()).has_value());
  watched.store.put(sample_identity(), payload_of(200));
  CHECK(watched.store.get(sample_identity()) == payload_of(200));
  REQUIRE(watched.warnings.size() == 1);
  CHECK(contains(watched.warnings.front(), shard.string()));
}

TEST_CASE("a folder of someone else is not used") {
  if (::geteuid() != 0) {
    check_memory_only("/", "/", "it belongs to user 0");
    return;
  }
  const ScratchFolder scratch;
  REQUIRE(::chown(scratch.path().c_str(), 12345, 12345) == 0);
  check_memory_only(scratch.path(), scratch.path(), "it belongs to user 12345");
}

TEST_CASE("a read-only folder is read, and what cannot be written stays in memory") {
  const ScratchFolder scratch;
  constexpr uid_t kNobody = 65534;
  const bool root = ::geteuid() == 0;
  Store(scratch.path()).put(sample_identity("1"), payload_of(1000, 1));
  // A folder of the new key's own, read-only too, so that neither level can be written.
  for (const auto& entry : fs::recursive_directory_iterator(scratch.path())) {
    if (root) REQUIRE(::chown(entry.path().c_str(), kNobody, kNobody) == 0);
    ::chmod(entry.path().c_str(), entry.is_directory() ? 0500 : 0400);
  }
  if (root) REQUIRE(::chown(scratch.path().c_str(), kNobody, kNobody) == 0);
  ::chmod(scratch.path().c_str(), 0500);

  // Root may write anywhere: a child that is not root looks.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (root && ::setuid(kNobody) != 0) ::_exit(10);
    Watched watched(scratch.path());
    if (watched.store.get(sample_identity("1")) != payload_of(1000, 1)) ::_exit(11);
    if (watched.store.on_disk()) ::_exit(12);
    watched.store.put(sample_identity("1"), payload_of(1000, 2));
    watched.store.put(sample_identity("2"), payload_of(1000, 3));
    if (watched.store.get(sample_identity("1")) != payload_of(1000, 2)) ::_exit(13);
    if (watched.store.get(sample_identity("2")) != payload_of(1000, 3)) ::_exit(14);
    if (watched.store.counters().failures != 2 || watched.warnings.size() != 1) ::_exit(15);
    if (!contains(watched.warnings.front(), "Permission denied")) ::_exit(16);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ::chmod(scratch.path().c_str(), 0700);
  for (const auto& entry : fs::recursive_directory_iterator(scratch.path())) {
    if (entry.is_directory()) ::chmod(entry.path().c_str(), 0700);
  }
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a full disk leaves the old entry, no temporary file, and the new payload in memory") {
  const ScratchFolder scratch;
  Watched watched(scratch.path());
  watched.store.put(sample_identity("1"), payload_of(1000, 1));
  {
    const FileSizeLimit full(5000);
    watched.store.put(sample_identity("1"), payload_of(10'000, 2));
    watched.store.put(sample_identity("2"), payload_of(10'000, 3));
  }
  CHECK(watched.store.get(sample_identity("1")) == payload_of(10'000, 2));
  CHECK(watched.store.get(sample_identity("2")) == payload_of(10'000, 3));
  CHECK(Store(scratch.path()).get(sample_identity("1")) == payload_of(1000, 1));
  CHECK(files_with(scratch.path(), ".entry").size() == 1);
  CHECK(watched.store.counters().failures == 2);
  REQUIRE(watched.warnings.size() == 1);
  CHECK(contains(watched.warnings.front(), watched.store.file(sample_identity("1")).string()));
  CHECK_FALSE(watched.store.on_disk());
}

TEST_CASE("a store uses its folder again when that is possible") {
  const ScratchFolder scratch;
  Watched watched(scratch.path());
  ::chmod(scratch.path().c_str(), 0777);
  watched.store.put(sample_identity(), payload_of(100, 1));
  CHECK_FALSE(watched.store.on_disk());
  ::chmod(scratch.path().c_str(), 0700);
  watched.store.put(sample_identity(), payload_of(100, 2));
  CHECK(watched.store.on_disk());
  CHECK(watched.store.get(sample_identity()) == payload_of(100, 2));
  CHECK(Store(scratch.path()).get(sample_identity()) == payload_of(100, 2));
  CHECK(watched.warnings.size() == 1);
}

TEST_CASE("a store without a warning function works") {
  const ScratchFolder scratch;
  write_file(scratch.path() / "file", {});
  Store store(scratch.path() / "file");
  store.put(sample_identity(), payload_of(100));
  CHECK(store.get(sample_identity()) == payload_of(100));
}
