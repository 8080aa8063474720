#include "cache/journal.h"

#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <sys/stat.h>

#include "cache/listing.h"
#include "cache/store.h"
#include "cache/trim.h"
#include "scratch_folder.h"
#include "stamps.h"
#include "tests/system/file_size_limit.h"

using namespace sparsekiln::cache;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

using Lines = std::vector<std::string>;

const std::string kName = "0123456789abcdef0123456789abcdef.entry";

struct Scratch {
  ScratchFolder scratch;
  Folder folder{scratch.path()};
  [[nodiscard]] Journal journal() const { return Journal(folder, kName); }
  [[nodiscard]] fs::path file() const { return folder.file(kName + ".journal"); }
};

}  // namespace

TEST_CASE("a journal has the lines that were appended, in their order, for any reader at once") {
  const Scratch scratch;
  Journal journal = scratch.journal();
  CHECK(journal.lines().empty());
  CHECK_FALSE(fs::exists(scratch.file()));
  Lines expected;
  for (const char* line : {"first", "", "a longer third line with \"quotes\" and \xff"}) {
    journal.append(line);
    expected.emplace_back(line);
    CHECK(journal.lines() == expected);
    CHECK(scratch.journal().lines() == expected);
  }
}

TEST_CASE("only its owner may read and write a journal's file") {
  const Scratch scratch;
  scratch.journal().append("a line");
  CHECK((fs::status(scratch.file()).permissions() & fs::perms::all) ==
        (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("a journal that is opened again continues after its last line") {
  const Scratch scratch;
  for (const char* line : {"one", "two", "three"}) scratch.journal().append(line);
  CHECK(scratch.journal().lines() == Lines{"one", "two", "three"});
}

TEST_CASE("an incomplete line of a killed writer is skipped, and removed before the next is appended") {
  for (const std::string& torn : {std::string("t"), std::string("torn"), std::string(100'000, 'x')}) {
    const Scratch scratch;
    Journal(scratch.journal()).append("whole");
    write_file(scratch.file(), bytes_of("whole\n" + torn));
    CHECK(scratch.journal().lines() == Lines{"whole"});
    scratch.journal().append("next");
    CHECK(scratch.journal().lines() == Lines{"whole", "next"});
  }
}

TEST_CASE("a journal with only an incomplete line starts again") {
  const Scratch scratch;
  Journal(scratch.journal()).append("x");
  write_file(scratch.file(), bytes_of("torn"));
  CHECK(scratch.journal().lines().empty());
  scratch.journal().append("next");
  CHECK(read_file(scratch.file()) == bytes_of("next\n"));
}

TEST_CASE("a journal that was removed may start again") {
  const Scratch scratch;
  Journal journal = scratch.journal();
  journal.append("old");
  journal.remove();
  CHECK_FALSE(fs::exists(scratch.file()));
  CHECK(journal.lines().empty());
  journal.append("new");
  CHECK(scratch.journal().lines() == Lines{"new"});
  scratch.journal().remove();
  scratch.journal().remove();
  CHECK_FALSE(fs::exists(scratch.file()));
}

TEST_CASE("if the folder cannot be written, a journal does nothing and reports nothing") {
  for (const char* path : {"/proc/no/such/folder", "/dev/null/folder"}) {
    Journal journal(Folder(path), kName);
    journal.append("a line");
    journal.append("another");
    CHECK(journal.lines().empty());
    journal.remove();
  }
}

TEST_CASE("at a limit of file sizes, a journal keeps the lines that it has") {
  const Scratch scratch;
  {
    const FileSizeLimit limit(10);
    Journal journal = scratch.journal();
    journal.append("a line");
    journal.append("another");
    journal.append("x");
  }
  CHECK(scratch.journal().lines() == Lines{"a line"});
}

TEST_CASE("a file that is not a journal is neither read nor written") {
  const Scratch scratch;
  scratch.journal().append("x");
  const fs::path elsewhere = scratch.scratch.path() / "elsewhere";
  write_file(elsewhere, bytes_of("kept\n"));
  for (const bool pipe : {false, true}) {
    fs::remove(scratch.file());
    if (pipe)
      REQUIRE(::mkfifo(scratch.file().c_str(), 0600) == 0);
    else
      fs::create_symlink(elsewhere, scratch.file());
    scratch.journal().append("a line");
    CHECK(scratch.journal().lines().empty());
    CHECK(read_file(elsewhere) == bytes_of("kept\n"));
  }
}

TEST_CASE("a store's journal is next to its entry, and is listed as a journal") {
  const ScratchFolder scratch;
  Store store(scratch.path());
  std::optional<Journal> journal = store.journal(sample_identity());
  REQUIRE(journal.has_value());
  journal->append("a line");
  const auto files = files_with(scratch.path(), ".journal");
  REQUIRE(files.size() == 1);
  CHECK(files[0] == fs::path(store.file(sample_identity()).string() + ".journal"));
  std::size_t listed = 0;
  for (const File& file : list(Folder(scratch.path())))
    if (file.kind == FileKind::journal) {
      ++listed;
      CHECK(file.key == sample_identity().key().hex());
    }
  CHECK(listed == 1);
  CHECK(name(FileKind::journal) == "journal");
}

TEST_CASE("a journal is removed when nothing was added for a month, and not earlier") {
  const Stamp now{std::chrono::seconds(1'800'000'000)};
  const auto going = [&](WallClock::duration age) {
    File file;
    file.name = kName + ".journal";
    file.kind = kind_of(file.name);
    file.bytes = 1;
    file.stamp = now - age;
    REQUIRE(file.kind == FileKind::journal);
    return surplus({file}, {1000, 10}, now).size();
  };
  CHECK(going(24h * 30 - 1s) == 0);
  CHECK(going(24h * 30) == 1);
}

TEST_CASE("clearing a folder leaves the journal of an entry that is being made") {
  const ScratchFolder scratch;
  Store store(scratch.path());
  store.put(sample_identity("1"), payload_of(100));
  store.journal(sample_identity("2"))->append("a line");
  CHECK(clear(Folder(scratch.path()), Clear::all).files == 1);
  CHECK(store.journal(sample_identity("2"))->lines() == Lines{"a line"});
}
