#include "cache/pack.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include <doctest/doctest.h>

#include <sparsekiln/error.h>

#include "cache/entry.h"
#include "cache/read_only_store.h"
#include "cache/store.h"
#include "scratch_folder.h"
#include "tests/system/file_size_limit.h"

namespace sparsekiln::cache {
namespace {

namespace fs = std::filesystem;

Identity identity_number(int number) {
  return Identity().add("what", "test").add("number", std::to_string(number));
}

std::vector<std::byte> payload_number(int number) {
  return payload_of(100 + 37 * static_cast<std::size_t>(number));
}

PackEntries entries_up_to(int count) {
  PackEntries entries;
  for (int i = 0; i < count; ++i)
    entries.emplace(identity_number(i).key(), encode(identity_number(i), payload_number(i)));
  return entries;
}

std::string read(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

/// The message for a pack of these bytes; nothing where it opens.
std::optional<std::string> refusal(const fs::path& file, const std::string& bytes) {
  write(file, bytes);
  try {
    static_cast<void>(Pack::open(file));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::cache);
    CHECK(std::string(error.what()).find(file.string()) != std::string::npos);
    return error.what();
  }
  return std::nullopt;
}

bool contains(const std::optional<std::string>& text, const std::string& part) {
  return text && text->find(part) != std::string::npos;
}

TEST_CASE("a pack returns every entry that was put into it, and nothing else") {
  const ScratchFolder folder;
  for (const int count : {0, 1, 2, 17}) {
    CAPTURE(count);
    const fs::path file = folder.path() / "a.pack";
    write_pack(file, entries_up_to(count));
    const auto pack = Pack::open(file);
    CHECK(pack->rows().size() == static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      CHECK(pack->get(identity_number(i)) == payload_number(i));
      const PackRow* const row = pack->find(identity_number(i).key());
      REQUIRE(row != nullptr);
      CHECK(pack->identity(*row) == identity_number(i));
      CHECK(pack->entry(*row).payload == payload_number(i));
    }
    CHECK_FALSE(pack->get(identity_number(count)).has_value());
  }
}

TEST_CASE("the same entries give the same bytes, under any name") {
  const ScratchFolder folder;
  write_pack(folder.path() / "a.pack", entries_up_to(5));
  write_pack(folder.path() / "another.name", entries_up_to(5));
  CHECK(read(folder.path() / "a.pack") == read(folder.path() / "another.name"));
}

TEST_CASE("a pack has the documented bytes") {
  const std::vector<std::byte> index = encode_pack_index({{Digest{}, payload_of(3)}});
  REQUIRE(index.size() == 72);
  const auto text = std::string(reinterpret_cast<const char*>(index.data()), index.size());
  CHECK(text.substr(0, 24) == std::string("SKPACK\r\n\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0", 24));
  CHECK(text.substr(40) == std::string(16, '\0') + std::string("\x48\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 16));
}

TEST_CASE("a pack that is shortened to any length is refused") {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "a.pack";
  write_pack(file, entries_up_to(3));
  const std::string whole = read(file);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    const auto said = refusal(file, whole.substr(0, size));
    CHECK((contains(said, "cut off") || contains(said, "not a pack")));
  }
  CHECK(contains(refusal(file, whole + '\0'), "bytes follow"));
}

TEST_CASE("every flipped byte is found: in the index when the pack is opened, in an entry when it is read") {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "a.pack";
  write_pack(file, entries_up_to(3));
  const std::string whole = read(file);
  const std::size_t index = 40 + 3 * 32;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    CAPTURE(at);
    std::string bad = whole;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    const auto said = refusal(file, bad);
    CHECK(said.has_value() == (at < index));
    if (said) continue;
    const auto pack = Pack::open(file);
    int read_well = 0;
    int found_damaged = 0;
    for (int i = 0; i < 3; ++i) {
      try {
        const auto payload = pack->get(identity_number(i));
        CHECK((!payload || *payload == payload_number(i)));
        read_well += payload ? 1 : 0;
      } catch (const Error& error) {
        CHECK(contains(error.what(), identity_number(i).key().hex()));
        ++found_damaged;
      }
    }
    CHECK(read_well == 2);
    CHECK(found_damaged <= 1);  // none: the entry now says that it is of another version, which is a miss
  }
}

TEST_CASE("a foreign file and a newer version are named as such") {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "a.pack";
  write_pack(file, entries_up_to(1));
  std::string newer = read(file);
  newer[8] = 2;
  CHECK(contains(refusal(file, newer), "version 2"));
  CHECK(contains(refusal(file, newer), "newer Sparsekiln"));
  CHECK(contains(refusal(file, "PK\3\4 something else entirely, and long enough to be a header"),
                 "not a pack"));
  CHECK(contains(refusal(file, ""), "not a pack"));
  fs::remove(file);
  CHECK_THROWS_AS(static_cast<void>(Pack::open(file)), Error);
  CHECK_THROWS_AS(static_cast<void>(Pack::open(folder.path())), Error);
}

TEST_CASE("a pack that anyone may write to is refused") {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "a.pack";
  write_pack(file, entries_up_to(1));
  REQUIRE(::chmod(file.c_str(), 0666) == 0);
  CHECK_THROWS_AS(static_cast<void>(Pack::open(file)), Error);
}

TEST_CASE("an entry at the position of another is not taken for it") {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "a.pack";
  PackEntries entries;
  entries.emplace(identity_number(1).key(), encode(identity_number(2), payload_number(2)));
  write_pack(file, entries);
  const auto pack = Pack::open(file);
  CHECK_THROWS_AS(static_cast<void>(pack->get(identity_number(1))), Error);
  CHECK_THROWS_AS(static_cast<void>(pack->identity(pack->rows().front())), Error);
  CHECK_THROWS_AS(static_cast<void>(pack->entry(pack->rows().front())), Error);
}

TEST_CASE("writing replaces a pack, and never another file") {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "a.pack";
  write_pack(file, entries_up_to(1));
  write_pack(file, entries_up_to(2));
  CHECK(Pack::open(file)->rows().size() == 2);
  const fs::path other = folder.path() / "layout.npy";
  write(other, "precious data");
  CHECK_THROWS_AS(write_pack(other, entries_up_to(1)), Error);
  CHECK(read(other) == "precious data");
  CHECK_THROWS_AS(write_pack(folder.path(), entries_up_to(1)), Error);
  CHECK_THROWS_AS(write_pack(folder.path() / "no" / "such.pack", entries_up_to(1)), Error);
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) files += entry.is_regular_file() ? 1 : 0;
  CHECK(files == 2);
}

TEST_CASE("at a limit of file sizes, the pack that was there stays") {
  const ScratchFolder scratch;
  const fs::path file = scratch.path() / "kernels.pack";
  write_pack(file, entries_up_to(1));
  const std::string before = read(file);
  {
    const FileSizeLimit limit(before.size() + 10);
    CHECK_THROWS_WITH_AS(write_pack(file, entries_up_to(5)), doctest::Contains("File too large"), Error);
  }
  CHECK(read(file) == before);
  CHECK(files_with(scratch.path(), "").size() == 1);
}

TEST_CASE("a pack is opened once, and again when it was replaced") {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "a.pack";
  write_pack(file, entries_up_to(1));
  const auto first = open_read_only_store(file);
  CHECK(open_read_only_store(file) == first);
  CHECK_FALSE(first->get(identity_number(1)).has_value());
  write_pack(file, entries_up_to(2));
  const auto second = open_read_only_store(file);
  CHECK(second != first);
  CHECK(second->get(identity_number(1)) == payload_number(1));
  CHECK(first->get(identity_number(0)) == payload_number(0));  // the old one is still whole
}

TEST_CASE("the folder of a store can be read like a pack") {
  const ScratchFolder folder;
  {
    Store store(folder.path() / "store");
    for (int i = 0; i < 3; ++i) store.put(identity_number(i), payload_number(i));
  }
  const auto layer = open_read_only_store(folder.path() / "store");
  CHECK(layer->identities().size() == 3);
  CHECK(layer->get(identity_number(2)) == payload_number(2));
  CHECK(layer->get(identity_number(2)).has_value());
  CHECK_FALSE(layer->get(identity_number(3)).has_value());
  CHECK_FALSE(layer->get(identity_number(3)).has_value());
  CHECK_THROWS_AS(static_cast<void>(open_read_only_store(folder.path() / "none")), Error);
}

}  // namespace
}  // namespace sparsekiln::cache
