// Files in the store that are not what they should be: never a crash, never a wrong payload.

#include <doctest/doctest.h>

#include <sys/stat.h>

#include "cache/entry.h"
#include "cache/folder.h"
#include "cache/store.h"
#include "scratch_folder.h"

using sparsekiln::cache::Folder;
using sparsekiln::cache::Store;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t kVersionByte = 8;
constexpr std::size_t kVersionBytes = 4;

/// A store with one entry in it, and where that lies.
struct OneEntry {
  ScratchFolder scratch;
  int warnings = 0;
  Store store{scratch.path(), [this](const std::string&) { ++warnings; }};
  fs::path file = store.file(sample_identity());
  fs::path bad = file.string() + ".bad";
  std::vector<std::byte> entry = (store.put(sample_identity(), payload_of(200)), read_file(file));

  void check_set_aside() {
    CHECK_FALSE(store.get(sample_identity()).has_value());
    CHECK_FALSE(fs::exists(fs::symlink_status(file)));
    CHECK(fs::exists(fs::symlink_status(bad)));
  }
  void check_recovers() {
    store.put(sample_identity(), payload_of(200));
    CHECK(store.get(sample_identity()) == payload_of(200));
    CHECK(warnings == 0);
  }
};

}  // namespace

TEST_CASE("a file with any one byte flipped is a miss and is set aside") {
  OneEntry one;
  REQUIRE(one.entry.size() > 200);
  for (std::size_t i = 0; i < one.entry.size(); ++i) {
    CAPTURE(i);
    auto flipped = one.entry;
    flipped[i] ^= std::byte{0x41};
    write_file(one.file, flipped);
    if (i >= kVersionByte && i < kVersionByte + kVersionBytes) {
      CHECK_FALSE(one.store.get(sample_identity()).has_value());
      continue;
    }
    fs::remove(one.bad);
    one.check_set_aside();
    CHECK(read_file(one.bad) == flipped);
  }
  CHECK(one.store.counters().quarantined == one.entry.size() - kVersionBytes);
  one.check_recovers();
}

TEST_CASE("a file shortened to any length is a miss and is set aside") {
  OneEntry one;
  for (std::size_t length = 0; length < one.entry.size(); ++length) {
    CAPTURE(length);
    write_file(one.file, std::span(one.entry).first(length));
    fs::remove(one.bad);
    one.check_set_aside();
  }
  CHECK(one.store.counters().quarantined == one.entry.size());
  one.check_recovers();
}

TEST_CASE("a whole entry under another key is a miss and is set aside") {
  OneEntry one;
  one.store.put(sample_identity("other"), payload_of(300));
  // As if the two identities had the same hash.
  fs::copy_file(one.store.file(sample_identity("other")), one.file, fs::copy_options::overwrite_existing);
  one.check_set_aside();
  CHECK(one.store.counters().quarantined == 1);
  CHECK(one.store.get(sample_identity("other")) == payload_of(300));
  one.check_recovers();
}

TEST_CASE("an entry of another format version is a miss and stays") {
  OneEntry one;
  one.entry[kVersionByte] = std::byte{99};
  write_file(one.file, one.entry);
  CHECK_FALSE(one.store.get(sample_identity()).has_value());
  CHECK(one.store.counters().quarantined == 0);
  CHECK(read_file(one.file) == one.entry);
  one.check_recovers();
}

TEST_CASE("a pipe, a link or a folder where an entry should be is a miss and is set aside") {
  OneEntry one;
  fs::rename(one.file, one.scratch.path() / "whole");
  SUBCASE("a pipe") { REQUIRE(::mkfifo(one.file.c_str(), 0600) == 0); }
  SUBCASE("a link to a whole entry") { fs::create_symlink(one.scratch.path() / "whole", one.file); }
  SUBCASE("a link to nothing") { fs::create_symlink("nothing", one.file); }
  SUBCASE("a folder") { fs::create_directory(one.file); }
  one.check_set_aside();
  one.check_recovers();
}

TEST_CASE("an entry that others can write is a miss and is set aside") {
  OneEntry one;
  ::chmod(one.file.c_str(), 0666);
  one.check_set_aside();
  one.check_recovers();
}

TEST_CASE("a file that claims to be huge is not read") {
  OneEntry one;
  std::error_code unsupported;
  fs::resize_file(one.file, std::uintmax_t{1} << 42, unsupported);
  if (unsupported) fs::resize_file(one.file, Folder::kMaxFileBytes + 1);
  one.check_set_aside();
  one.check_recovers();
}

TEST_CASE("a good file published since a bad one was read is not set aside") {
  const ScratchFolder scratch;
  const Folder folder(scratch.path());
  const std::string name = "abcd";
  folder.publish(name, bytes_of("bad"));
  const auto found = folder.read(name);
  REQUIRE(found.has_value());
  CHECK(found->bytes == bytes_of("bad"));
  folder.publish(name, bytes_of("good"));
  CHECK_FALSE(folder.set_aside(name, *found));
  const auto now = folder.read(name);
  REQUIRE(now.has_value());
  CHECK(now->bytes == bytes_of("good"));
  CHECK(folder.set_aside(name, *now));
  CHECK_FALSE(folder.read(name).has_value());
}
