#include "cache/listing.h"

#include <doctest/doctest.h>

#include <sys/stat.h>

#include <sparsekiln/error.h>

#include "cache/store.h"
#include "scratch_folder.h"

using namespace sparsekiln::cache;
namespace fs = std::filesystem;

namespace {

const std::string kKey = "0123456789abcdef0123456789abcdef";

/// A store with three entries that differ in two fields.
struct Three {
  ScratchFolder scratch;
  Folder folder{scratch.path()};
  Store store{scratch.path()};

  Three() {
    for (const char* batch : {"1", "2", "3"}) store.put(sample_identity(batch), payload_of(100));
    store.wait_for_trim();
  }
  [[nodiscard]] File entry(const char* batch) const {
    for (File& file : list(folder))
      if (file.path == store.file(sample_identity(batch))) return file;
    FAIL("it is not listed");
    return {};
  }
};

}  // namespace

TEST_CASE("the kind of a file follows from its name") {
  CHECK(kind_of(kKey + ".entry") == FileKind::entry);
  CHECK(kind_of(kKey + ".entry.failed") == FileKind::failed);
  CHECK(kind_of(kKey + ".entry.lock") == FileKind::lock);
  CHECK(kind_of(kKey + ".entry.bad") == FileKind::bad);
  CHECK(kind_of(kKey + ".entry.failed.bad") == FileKind::bad);
  CHECK(kind_of(kKey + ".entry.0123456789abcdef.tmp") == FileKind::temporary);
  CHECK(kind_of(kKey + ".entry.lock.0123456789abcdef.tmp") == FileKind::temporary);
  CHECK(kind_of("counters.0123456789abcdef.tmp") == FileKind::temporary);
  for (const std::string& name :
       {std::string("counters"), std::string("trimmed"), kKey, kKey + ".o", kKey.substr(1) + ".entry",
        "X" + kKey.substr(1) + ".entry", kKey + ".entryx", std::string("notes.tmp"), std::string()}) {
    CAPTURE(name);
    CHECK(kind_of(name) == FileKind::other);
  }
}

TEST_CASE("every file of the folder is listed with its key, size and stamp, in order") {
  Three three;
  write_file(three.scratch.path() / "notes", bytes_of("12345"));
  const auto files = list(three.folder);
  REQUIRE(files.size() == 5);  // and the stamp of the trim
  int entries = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const File& file = files[i];
    CAPTURE(file.name);
    if (i > 0) CHECK(std::pair(files[i - 1].shard, files[i - 1].name) < std::pair(file.shard, file.name));
    CHECK(fs::file_size(file.path) == file.bytes);
    if (file.kind == FileKind::other) CHECK(file.key == "");
    if (file.kind != FileKind::entry) continue;
    ++entries;
    CHECK(file.name == file.key + ".entry");
    CHECK(file.shard == file.key.substr(0, 2));
    CHECK(WallClock::now() - file.stamp < std::chrono::minutes(10));
  }
  CHECK(entries == 3);
}

TEST_CASE("a missing folder is empty, and one that may not be used is an error") {
  const ScratchFolder scratch;
  CHECK(list(Folder(scratch.path() / "none")).empty());
  ::chmod(scratch.path().c_str(), 0777);
  CHECK_THROWS_AS(static_cast<void>(list(Folder(scratch.path()))), sparsekiln::Error);
}

TEST_CASE("a folder in the folder that may not be used is left out, and links in it are not followed") {
  Three three;
  const fs::path shard = three.entry("1").path.parent_path();
  ::chmod(shard.c_str(), 0777);
  for (const File& file : list(three.folder)) CHECK(file.path.parent_path() != shard);
  ::chmod(shard.c_str(), 0700);
  fs::create_symlink(three.entry("1").path, shard / (kKey + ".entry"));
  for (const File& file : list(three.folder))
    if (file.name == kKey + ".entry") CHECK(file.kind == FileKind::other);
}

TEST_CASE("an entry's identity is read from its head, however much of the rest is damaged") {
  Three three;
  const File file = three.entry("2");
  CHECK(read_identity(three.folder, file) == sample_identity("2"));
  auto bytes = read_file(file.path);
  bytes.back() ^= std::byte{1};
  write_file(file.path, bytes);
  CHECK(read_identity(three.folder, file) == sample_identity("2"));
  Damage damage = Damage::none;
  CHECK_FALSE(read_entry(three.folder, file, damage).has_value());
  CHECK(damage == Damage::checksum);
  write_file(file.path, bytes_of("SPK"));
  CHECK_FALSE(read_identity(three.folder, file).has_value());
}

TEST_CASE("an identity larger than the first page is read, too") {
  const ScratchFolder scratch;
  Store store(scratch.path());
  const auto identity = sample_identity(std::string(100'000, 'x'));
  store.put(identity, {});
  store.wait_for_trim();
  for (const File& file : list(Folder(scratch.path())))
    if (file.kind == FileKind::entry) CHECK(read_identity(Folder(scratch.path()), file) == identity);
}

TEST_CASE("an entry is verified whole, with its name") {
  Three three;
  Damage damage = Damage::checksum;
  const auto entry = read_entry(three.folder, three.entry("1"), damage);
  REQUIRE(entry.has_value());
  CHECK(damage == Damage::none);
  CHECK(entry->identity == sample_identity("1"));
  CHECK(entry->payload == payload_of(100));
  fs::copy_file(three.entry("2").path, three.entry("1").path, fs::copy_options::overwrite_existing);
  CHECK_FALSE(read_entry(three.folder, three.entry("1"), damage).has_value());
  CHECK(damage == Damage::misnamed);
  CHECK(name(damage) == "misnamed");
}

TEST_CASE("the nearest entry has the most fields in common, and its differences are listed") {
  Three three;
  Identity near = sample_identity("2");
  near.add("more", "yes");
  const auto found = nearest(three.folder, near);
  REQUIRE(found.has_value());
  CHECK(found->identity == sample_identity("2"));
  CHECK(found->file.path == three.store.file(sample_identity("2")));
  REQUIRE(found->differences.size() == 1);
  CHECK(found->differences[0].field == "more");
  CHECK(found->differences[0].wanted == "yes");
  CHECK(found->differences[0].stored == "");

  const auto exact = nearest(three.folder, sample_identity("3"));
  REQUIRE(exact.has_value());
  CHECK(exact->differences.empty());

  const auto other = nearest(three.folder, sample_identity("64"));
  REQUIRE(other.has_value());
  REQUIRE(other->differences.size() == 1);
  CHECK(other->differences[0].field == "batch");
  CHECK(other->differences[0].wanted == "64");
  CHECK(other->differences[0].stored != "64");

  const ScratchFolder empty;
  CHECK_FALSE(nearest(Folder(empty.path()), near).has_value());
}

TEST_CASE("a field that only the stored identity has is listed as well") {
  Identity wanted, stored;
  wanted.add("a", "1").add("b", "2");
  stored.add("a", "1").add("c", "3");
  const auto found = differences(wanted, stored);
  REQUIRE(found.size() == 2);
  CHECK(found[0].field == "b");
  CHECK(found[0].stored == "");
  CHECK(found[1].field == "c");
  CHECK(found[1].wanted == "");
  CHECK(found[1].stored == "3");
}
