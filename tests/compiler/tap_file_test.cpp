#include "compiler/tap_file.h"

#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

#include "tests/temporary_folder.h"

namespace sparsekiln {
namespace {

/// A file with the elements of an array of bool.
std::string npy(const std::string& shape, const std::string& bits, bool fortran = false) {
  const std::string header = std::string("{'descr': '|b1', 'fortran_order': ") +
                             (fortran ? "True" : "False") + ", 'shape': " + shape + "}\n";
  std::string file = "\x93NUMPY";
  file += {1, 0, static_cast<char>(header.size()), 0};
  file += header;
  for (const char bit : bits) file += bit == '1' ? '\1' : '\0';
  return file;
}

class Files {
 public:
  /// The text of a convolution with the taps of a file of this content, or why it is refused.
  [[nodiscard]] std::string read(const std::string& name, const std::string& content,
                                 const std::string& convolution) const {
    const std::filesystem::path file = folder_.path() / name;
    std::ofstream(file, std::ios::binary) << content;
    try {
      return to_string(with_taps_of(file, parse_convolution(convolution)));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::invalid_argument);
      std::string why = error.what();
      const std::string path = file.string();
      return why.replace(why.find(path), path.size(), name);
    }
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_CASE("taps are read from arrays and lines of every shape that a mask has") {
  const Files files;
  const std::string geometry = "kernel=2x3 input=5x5";
  const std::string shared = geometry + " taps=110100";
  CHECK(files.read("a.npy", npy("(6,)", "110100"), geometry) == shared);
  CHECK(files.read("a.npy", npy("(2, 3)", "110100"), geometry) == shared);
  CHECK(files.read("a.npy", npy("(1, 6)", "110100"), geometry) == shared);
  CHECK(files.read("a.txt", "1 1 0 1 0 0", geometry) == shared);
  CHECK(files.read("a.txt", "110\n100\n", geometry) == shared);
  const std::string each = geometry + " taps=110100000001";
  CHECK(files.read("a.npy", npy("(2, 6)", "110100000001"), geometry) == each);
  CHECK(files.read("a.npy", npy("(2, 2, 3)", "110100000001"), geometry) == each);
  CHECK(files.read("a.txt", "110100\n000001\n", geometry) == each);
}

TEST_CASE("taps in Fortran order are those of their places") {
  const Files files;
  CHECK(files.read("a.npy", npy("(2, 3)", "110001", true), "kernel=2x3 input=5x5") ==
        "kernel=2x3 input=5x5 taps=100101");  // columns 11, 00, 01
  CHECK(files.read("a.npy", npy("(2, 2, 1)", "1011", true), "kernel=2x1 input=5x5") ==
        "kernel=2x1 input=5x5 taps=1101");
}

TEST_CASE("files that hold no mask of the kernel are refused by their names") {
  const Files files;
  const std::string geometry = "kernel=2x3 input=5x5";
  const std::string would = "; [6], [2, 3], or one of them with an axis of blocks in front, would work";
  CHECK(files.read("a.npy", npy("(5,)", "11111"), geometry) == "taps file 'a.npy': its shape is [5]" + would);
  CHECK(files.read("a.npy", npy("(3, 2)", "111111"), geometry) ==
        "taps file 'a.npy': its shape is [3, 2]" + would);
  CHECK(files.read("a.npy", npy("(2, 2, 2, 3)", std::string(24, '1')), geometry) ==
        "taps file 'a.npy': its shape is [2, 2, 2, 3]" + would);
  CHECK(files.read("a.txt", "11\n11\n", geometry) == "taps file 'a.txt': its shape is [2, 2]" + would);
  CHECK(files.read("a.npy", npy("()", "1"), geometry) == "taps file 'a.npy': its shape is []" + would);
  CHECK(files.read("a.npy", npy("(6,)", "110100"), geometry + " taps=110100") ==
        "taps of 'a.npy', and in the text of the convolution; one of them would work");
  CHECK(files.read("a.txt", "1x\n", geometry).starts_with("taps file 'a.txt', line 1: expected 0 or 1"));
  CHECK(files.read("a.npy", npy("(6,)", "11"), geometry).starts_with("taps file 'a.npy', byte "));
  CHECK(files.read("a.npy", npy("(16777216, 16777216, 16777216)", "11"), geometry)
            .find("the file ends after 2 bytes of data") != std::string::npos);
}

TEST_CASE("a file of taps without a tap is refused, and one that is missing is not there to be read") {
  const Files files;
  CHECK_THROWS_WITH(static_cast<void>(with_taps_of("nowhere.npy", parse_convolution("kernel=2 input=5"))),
                    "cannot read 'nowhere.npy': No such file or directory");
  test::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "none.txt";
  std::ofstream(file) << "00";
  CHECK_THROWS_WITH(static_cast<void>(with_taps_of(file, parse_convolution("kernel=2 input=5"))),
                    "convolution: a mask without a tap; one or more would work");
}

}  // namespace
}  // namespace sparsekiln
