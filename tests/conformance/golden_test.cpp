#include "tests/conformance/golden.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <unistd.h>

#include <sparsekiln/error.h>

using namespace sparsekiln;
using namespace sparsekiln::conformance;

namespace {

namespace fs = std::filesystem;

/// A folder of this test's own.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("conformance-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

Case one_case(const std::string& instruction) {
  return parse_cases(
             "case it\nthreads 2\nin u32 a\nout u32 d, u64 e\nptx\n  " + instruction + "\nrows\n  1 -> 2 3\n",
             "family.cases", "family")
      .at(0);
}

const Answer kAnswer = {{7, 0x123456789abc}, {9, 0}};

}  // namespace

TEST_CASE("the answers of a device are read back unchanged") {
  const Folder folder;
  AnswerWriter writer;
  const Case test = one_case("nothing;");
  writer.add(test, kAnswer);
  writer.write(folder.path() / "any.json", {.name = "A GPU (80GB)", .compute_capability = 90}, 13000);
  const auto entries = GoldenAnswers::load(folder.path()).to(test);
  REQUIRE(entries.size() == 1);
  CHECK(entries.at(0).device == "A GPU (80GB)");
  CHECK(entries.at(0).answer == kAnswer);
}

TEST_CASE("an answer to another question is none") {
  const Folder folder;
  AnswerWriter writer;
  writer.add(one_case("nothing;"), kAnswer);
  writer.write(folder.path() / "any.json", {.name = "A GPU"}, 13000);
  CHECK(GoldenAnswers::load(folder.path()).to(one_case("something;")).empty());
}

TEST_CASE("a folder that is not there holds no answers, and a damaged file is named") {
  const Folder folder;
  CHECK(GoldenAnswers::load(folder.path() / "none").to(one_case("nothing;")).empty());
  std::ofstream(folder.path() / "family.json") << "{";
  CHECK_THROWS_AS((void)GoldenAnswers::load(folder.path()), Error);
}
