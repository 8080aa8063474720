// Layout::load and save: what the ending decides, what is left on the disk, and how failures read.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/layout.h>
#include <sparsekiln/patterns.h>

namespace fs = std::filesystem;
using sparsekiln::Error;
using sparsekiln::ErrorKind;
using sparsekiln::Layout;
namespace patterns = sparsekiln::patterns;

namespace {

/// A folder of its own for each case.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "layout_file_test.XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] fs::path operator/(const char* name) const { return path_ / name; }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(path_), fs::directory_iterator());
  }

 private:
  fs::path path_;
};

void write(const fs::path& file, const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; }

std::string read(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

template <typename Action>
std::string failure(ErrorKind kind, Action action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "no failure";
}

bool has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  MESSAGE(text);
  return false;
}

constexpr const char* kEndings[] = {"L.npy", "L.mtx", "L.smtx", "L.txt", "L"};

}  // namespace

TEST_CASE("every format gives back the layout that was saved") {
  const Folder folder;
  const Layout layouts[] = {
      patterns::random(1, 1, 0, 1),    patterns::random(1, 1, 1, 1),
      patterns::random(7, 13, 0.3, 1), patterns::random(13, 7, 1, 1),
      patterns::random(40, 50, 0, 1),  patterns::watts_strogatz(384, 384, 0.1, 0.2, 3),
      patterns::banded(300, 1, 0),     patterns::causal(65),
  };
  for (const Layout& layout : layouts)
    for (const char* ending : kEndings) {
      CAPTURE(ending);
      layout.save(folder / ending);
      CHECK(Layout::load(folder / ending) == layout);
    }
}

TEST_CASE("a grid without cells survives all formats but text, which says so and leaves nothing") {
  const Folder folder;
  const Layout layouts[] = {
      Layout(), Layout::from_csr(3, 0, std::vector<std::int32_t>(4), std::vector<std::int32_t>{}),
      Layout::from_csr(0, 3, std::vector<std::int32_t>(1), std::vector<std::int32_t>{})};
  for (const Layout& layout : layouts) {
    for (const char* ending : {"L.npy", "L.mtx", "L.smtx"}) {
      CAPTURE(ending);
      layout.save(folder / ending);
      CHECK(Layout::load(folder / ending) == layout);
    }
    CHECK(has(failure(ErrorKind::invalid_argument, [&] { layout.save(folder / "L.txt"); }),
              "no cells to write as text"));
  }
  CHECK(folder.files() == 3);
}

TEST_CASE("saving replaces the file whole and leaves no temporary") {
  const Folder folder;
  write(folder / "L.txt", "a much longer text that stood here before\n");
  patterns::causal(2).save(folder / "L.txt");
  CHECK(read(folder / "L.txt") == "10\n11\n");
  CHECK(folder.files() == 1);
}

TEST_CASE("saving through a link writes the file that it points to") {
  const Folder folder;
  write(folder / "real.txt", "0\n");
  fs::create_symlink(folder / "real.txt", folder / "link.txt");
  patterns::causal(2).save(folder / "link.txt");
  CHECK(fs::is_symlink(folder / "link.txt"));
  CHECK(read(folder / "real.txt") == "10\n11\n");
}

TEST_CASE("saving uses another name where a killed writer left its temporary") {
  const Folder folder;
  const std::string stale = ".L.txt." + std::to_string(::getpid()) + "-0.tmp";
  write(folder / stale.c_str(), "half a lay");
  patterns::causal(2).save(folder / "L.txt");
  CHECK(read(folder / "L.txt") == "10\n11\n");
  CHECK(read(folder / stale.c_str()) == "half a lay");
}

TEST_CASE("what is not a regular file is neither written nor replaced") {
  const Folder folder;
  fs::create_directory(folder / "L.npy");
  CHECK(has(failure(ErrorKind::io, [&] { patterns::causal(2).save(folder / "L.npy"); }), "Is a directory"));
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  CHECK(has(failure(ErrorKind::io, [&] { patterns::causal(2).save(folder / "fifo"); }),
            "it is no regular file"));
  CHECK(fs::is_fifo(folder / "fifo"));
  CHECK(folder.files() == 2);
}

TEST_CASE("a missing folder is a failure to write, with the reason") {
  const Folder folder;
  CHECK(has(failure(ErrorKind::io, [&] { patterns::causal(2).save(folder / "missing/L.npy"); }),
            "cannot write '" + (folder / "missing/L.npy").string() + "': No such file or directory"));
  CHECK(folder.files() == 0);
}

TEST_CASE("a format that cannot hold the grid leaves the old file as it was") {
  const Folder folder;
  write(folder / "L.txt", "1\n");
  CHECK_THROWS_AS(Layout().save(folder / "L.txt"), Error);
  CHECK(read(folder / "L.txt") == "1\n");
  CHECK(folder.files() == 1);
}

TEST_CASE("a dense format refuses a huge grid, which the sparse ones take") {
  const Folder folder;
  const Layout layout = patterns::random(1 << 17, 1 << 17, 1e-9, 1);
  CHECK(has(failure(ErrorKind::invalid_argument, [&] { layout.save(folder / "L.npy"); }),
            "would take 17179869184 bytes"));
  CHECK(has(failure(ErrorKind::invalid_argument, [&] { layout.save(folder / "L"); }),
            ".mtx and .smtx hold only"));
  layout.save(folder / "L.mtx");
  CHECK(Layout::load(folder / "L.mtx") == layout);
  CHECK(folder.files() == 1);
}

TEST_CASE("an ending that names no format is read as text, and not written") {
  const Folder folder;
  for (const char* name : {"L.npz", "L.NPY", "L.json", "L.v2"}) {
    CAPTURE(name);
    const std::string said =
        failure(ErrorKind::invalid_argument, [&] { patterns::causal(2).save(folder / name); });
    CHECK(has(said, (folder / name).string()));
    CHECK(has(said, ".npy, .mtx, .smtx or .txt would work"));
  }
  CHECK(folder.files() == 0);
  patterns::causal(2).save(folder / "L.txt");
  std::filesystem::rename(folder / "L.txt", folder / "L.mask");
  CHECK(Layout::load(folder / "L.mask") == patterns::causal(2));
}

TEST_CASE("a missing file and a folder are failures to read, with the reason") {
  const Folder folder;
  CHECK(failure(ErrorKind::io, [&] { static_cast<void>(Layout::load(folder / "L.npy")); }) ==
        "cannot read '" + (folder / "L.npy").string() + "': No such file or directory");
  fs::create_directory(folder / "D.npy");
  CHECK(failure(ErrorKind::io, [&] { static_cast<void>(Layout::load(folder / "D.npy")); }) ==
        "cannot read '" + (folder / "D.npy").string() + "': Is a directory");
}

TEST_CASE("a file that may not be read is a failure to read" * doctest::skip(::geteuid() == 0)) {
  const Folder folder;
  write(folder / "L.txt", "1\n");
  fs::permissions(folder / "L.txt", fs::perms::none);
  CHECK(has(failure(ErrorKind::io, [&] { static_cast<void>(Layout::load(folder / "L.txt")); }),
            "Permission denied"));
}

TEST_CASE("content that makes no sense is an invalid argument that names the file") {
  const Folder folder;
  for (const char* ending : kEndings) {
    CAPTURE(ending);
    write(folder / ending, "x");
    CHECK(has(failure(ErrorKind::invalid_argument, [&] { static_cast<void>(Layout::load(folder / ending)); }),
              "layout file '" + (folder / ending).string() + "', "));
  }
}

TEST_CASE("a layout file is readable as the user's umask says") {
  const Folder folder;
  const mode_t old = ::umask(022);
  patterns::causal(2).save(folder / "L.npy");
  ::umask(old);
  CHECK((fs::status(folder / "L.npy").permissions() & fs::perms::all) == fs::perms(0644));
}

TEST_CASE("what is no regular file is refused before a byte of it is read") {
  const Folder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  for (const fs::path& file : {folder / "pipe", fs::path("/dev/zero"), fs::path("/dev/null")}) {
    CAPTURE(file);
    CHECK(has(failure(ErrorKind::io, [&] { (void)Layout::load(file); }),
              "cannot read '" + file.string() + "': it is no regular file"));
  }
}

TEST_CASE("a file larger than any that is read is refused by its size") {
  const Folder folder;
  const fs::path file = folder / "large.npy";
  write(file, "");
  fs::resize_file(file, (std::uintmax_t{1} << 32) + 1);  // a hole: it takes no room on the disk
  CHECK(has(failure(ErrorKind::io, [&] { (void)Layout::load(file); }),
            "it has 4294967297 bytes, and 4294967296 at most are read"));
}
