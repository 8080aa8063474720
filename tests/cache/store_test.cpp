#include "cache/store.h"

#include <doctest/doctest.h>

#include "environment.h"
#include "scratch_folder.h"

using sparsekiln::cache::Identity;
using sparsekiln::cache::Store;
namespace fs = std::filesystem;

namespace {

unsigned mode_of(const fs::path& path) { return static_cast<unsigned>(fs::status(path).permissions()); }

}  // namespace

TEST_CASE("what one store puts, another on the same folder gets") {
  const ScratchFolder scratch;
  Store writer(scratch.path());
  for (const std::size_t size : {0u, 1u, 200'000u}) {
    CAPTURE(size);
    const Identity identity = sample_identity(std::to_string(size));
    CHECK_FALSE(writer.get(identity).has_value());
    writer.put(identity, payload_of(size));
    CHECK(writer.get(identity) == payload_of(size));
    CHECK(Store(scratch.path()).get(identity) == payload_of(size));
  }
  CHECK(writer.counters().stores == 3);
  CHECK(writer.counters().hits == 3);
  CHECK(writer.counters().misses == 3);
  CHECK(writer.counters().failures == 0);
  CHECK(writer.counters().quarantined == 0);
  CHECK(writer.on_disk());
  CHECK(writer.why() == "");
}

TEST_CASE("an identity that differs in one field is a miss") {
  const ScratchFolder scratch;
  Store store(scratch.path());
  store.put(sample_identity("64"), payload_of(100));
  CHECK_FALSE(store.get(sample_identity("65")).has_value());
  CHECK_FALSE(store.get(sample_identity("64").add("more", "")).has_value());
  CHECK(store.get(sample_identity("64")) == payload_of(100));
}

TEST_CASE("a second put replaces the first") {
  const ScratchFolder scratch;
  Store store(scratch.path());
  store.put(sample_identity(), payload_of(5000, 1));
  store.put(sample_identity(), payload_of(100, 2));
  CHECK(store.get(sample_identity()) == payload_of(100, 2));
  CHECK(files_with(scratch.path(), ".entry").size() == 1);
}

TEST_CASE("an entry is where file() says, and there is no other file") {
  const ScratchFolder scratch;
  Store store(scratch.path());
  store.put(sample_identity(), payload_of(100));
  const std::string key = sample_identity().key().hex();
  CHECK(store.file(sample_identity()) == scratch.path() / key.substr(0, 2) / (key + ".entry"));
  CHECK(files_with(scratch.path(), ".entry") == std::vector<fs::path>{store.file(sample_identity())});
}

TEST_CASE("folders are created by the first write, not before, and only their owner may use them") {
  const ScratchFolder scratch;
  const fs::path folder = scratch.path() / "a" / "b";
  const mode_t umask_before = ::umask(0);
  Store store(folder);
  CHECK_FALSE(store.get(sample_identity()).has_value());
  CHECK(store.on_disk());
  CHECK_FALSE(fs::exists(scratch.path() / "a"));
  store.put(sample_identity(), payload_of(100));
  ::umask(umask_before);
  CHECK(mode_of(scratch.path() / "a") == 0700);
  CHECK(mode_of(folder) == 0700);
  CHECK(mode_of(store.file(sample_identity()).parent_path()) == 0700);
  CHECK(mode_of(store.file(sample_identity())) == 0600);
}

TEST_CASE("a folder removed while the program runs is made again") {
  const ScratchFolder scratch;
  int warnings = 0;
  Store store(scratch.path() / "store", [&](const std::string&) { ++warnings; });
  store.put(sample_identity(), payload_of(100));
  store.wait_for_trim();
  fs::remove_all(scratch.path() / "store");
  CHECK_FALSE(store.get(sample_identity()).has_value());
  store.put(sample_identity(), payload_of(100));
  CHECK(fs::exists(store.file(sample_identity())));
  CHECK(warnings == 0);
}

TEST_CASE("a relative folder stays where it was when the working directory changes") {
  const ScratchFolder scratch;
  const fs::path before = fs::current_path();
  fs::current_path(scratch.path());
  Store store("relative");
  fs::current_path(before);
  store.put(sample_identity(), payload_of(100));
  CHECK(files_with(scratch.path(), ".entry").size() == 1);
}

TEST_CASE("a link to a folder of the user is used") {
  const ScratchFolder scratch;
  fs::create_directory(scratch.path() / "real");
  ::chmod((scratch.path() / "real").c_str(), 0700);
  fs::create_directory_symlink(scratch.path() / "real", scratch.path() / "link");
  Store store(scratch.path() / "link");
  store.put(sample_identity(), payload_of(100));
  CHECK(files_with(scratch.path() / "real", ".entry").size() == 1);
}

TEST_CASE("the default folder comes from the first variable that names one") {
  const Variable chosen("SPARSEKILN_CACHE_DIR", "/chosen");
  const Variable base("XDG_CACHE_HOME", "/base");
  const Variable home("HOME", "/somewhere");
  CHECK(Store::default_folder() == "/chosen");
  const Variable not_chosen("SPARSEKILN_CACHE_DIR", "");
  CHECK(Store::default_folder() == "/base/sparsekiln");
  const Variable relative_base("XDG_CACHE_HOME", "base");
  CHECK(Store::default_folder() == "/somewhere/.cache/sparsekiln");
  const Variable no_base("XDG_CACHE_HOME", nullptr);
  CHECK(Store::default_folder() == "/somewhere/.cache/sparsekiln");
}

TEST_CASE("without any variable the store keeps entries in memory, and says what to set") {
  const Variable chosen("SPARSEKILN_CACHE_DIR", nullptr);
  const Variable base("XDG_CACHE_HOME", nullptr);
  const Variable home("HOME", nullptr);
  std::vector<std::string> warnings;
  Store store({}, [&](const std::string& warning) { warnings.push_back(warning); });
  CHECK(store.folder().empty());
  CHECK(store.file(sample_identity()).empty());
  CHECK_FALSE(store.on_disk());
  CHECK_FALSE(store.get(sample_identity()).has_value());
  CHECK(warnings.empty());
  store.put(sample_identity(), payload_of(100));
  CHECK(store.get(sample_identity()) == payload_of(100));
  REQUIRE(warnings.size() == 1);
  CHECK(warnings.front().find("SPARSEKILN_CACHE_DIR") != std::string::npos);
}
