#include "compiler/layout_file/npy.h"

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

using sparsekiln::Error;
using sparsekiln::ErrorKind;
using sparsekiln::Layout;
namespace layout_file = sparsekiln::layout_file;

namespace {

Layout parse(const std::string& bytes) {
  return layout_file::parse_npy(std::as_bytes(std::span(bytes)), "L.npy");
}

/// A file of the given version; the header gets its newline but no padding.
std::string file(const std::string& header, const std::string& data, int major = 1) {
  const std::size_t length = header.size() + 1;
  std::string bytes = "\x93NUMPY";
  bytes += {static_cast<char>(major), 0, static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  if (major > 1) bytes += {0, 0};
  return bytes + header + "\n" + data;
}

std::string header(const std::string& descr, const std::string& shape, bool fortran = false) {
  return "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }";
}

std::string refusal(const std::string& bytes) {
  try {
    static_cast<void>(parse(bytes));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return "accepted";
}

bool refuses(const std::string& bytes, const std::string& part) {
  const std::string text = refusal(bytes);
  if (text.starts_with("layout file 'L.npy', byte ") && text.find(part) != std::string::npos) return true;
  MESSAGE(text);
  return false;
}

std::string zeros(std::size_t count) { return std::string(count, '\0'); }

//  1 0 1
//  0 0 1
Layout sample() { return Layout::from_mask(2, 3, std::vector<std::uint8_t>{1, 0, 1, 0, 0, 1}); }
const std::string kBytes{1, 0, 1, 0, 0, 1};

}  // namespace

TEST_CASE("npy: versions 1.0, 2.0 and 3.0 are read") {
  for (const int major : {1, 2, 3}) CHECK(parse(file(header("|b1", "(2, 3)"), kBytes, major)) == sample());
}

TEST_CASE("npy: every bool and integer type is read in both byte orders") {
  for (const std::string order : {"<", ">"})
    for (const std::string type : {"b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"}) {
      CAPTURE(order + type);
      const std::size_t size = static_cast<std::size_t>(type[1] - '0');
      std::string data;
      for (const char value : kBytes) {
        std::string element = zeros(size);
        element[order == "<" ? 0 : size - 1] = value;
        data += element;
      }
      CHECK(parse(file(header(order + type, "(2, 3)"), data)) == sample());
    }
  CHECK(parse(file(header("|u1", "(2, 3)"), kBytes)) == sample());
}

TEST_CASE("npy: a value counts as present whichever of its bytes is set") {
  std::string data = zeros(3 * 8);
  data[3] = '\x40';
  data[23] = '\x80';
  CHECK(parse(file(header("<i8", "(1, 3)"), data)) ==
        Layout::from_mask(1, 3, std::vector<std::uint8_t>{1, 0, 1}));
}

TEST_CASE("npy: Fortran order is read by columns") {
  CHECK(parse(file(header("|b1", "(2, 3)", true), std::string{1, 0, 0, 0, 1, 1})) == sample());
}

TEST_CASE("npy: a header is a Python literal, keys in any order and either quote") {
  CHECK(parse(file("{ \"shape\" : ( 2 ,3, ),'fortran_order':False , 'descr':\"|b1\" }   ", kBytes)) ==
        sample());
  CHECK(parse(file("{'descr': '|b1', 'fortran_order': False, 'shape': (2L, 3L)}", kBytes)) == sample());
}

TEST_CASE("npy: what is written is what NumPy writes") {
  std::string bytes;
  layout_file::write_npy(sample(), [&](std::string_view piece) { bytes += piece; });
  REQUIRE(bytes.size() == 128 + 6);
  CHECK(bytes.substr(0, 10) == std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  CHECK(bytes.substr(10, 61) == "{'descr': '|b1', 'fortran_order': False, 'shape': (2, 3), }  ");
  CHECK(bytes[127] == '\n');
  CHECK(bytes.substr(128) == kBytes);
}

TEST_CASE("npy: an array without elements is a grid without cells") {
  CHECK(parse(file(header("|b1", "(0, 5)"), "")).cols() == 5);
  CHECK(parse(file(header("<i8", "(5, 0)"), "")).rows() == 5);
}

TEST_CASE("npy: every prefix of a file is refused") {
  const std::string whole = file(header("|b1", "(2, 3)"), kBytes);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(refuses(whole.substr(0, size), ""));
  }
  CHECK(refuses(whole.substr(0, whole.size() - 1),
                "byte " + std::to_string(whole.size() - 1) +
                    ": the file ends after 5 bytes of data; 2 × 3 elements of 1 need 6"));
}

TEST_CASE("npy: bytes after the array are refused, with their place") {
  const std::string whole = file(header("|b1", "(2, 3)"), kBytes);
  CHECK(refuses(whole + "xy", "byte " + std::to_string(whole.size()) +
                                  ": expected the end of the file, found 2 more bytes"));
}

TEST_CASE("npy: a header's length that points beyond the file is refused") {
  std::string bytes = file(header("|b1", "(2, 3)"), kBytes, 2);
  bytes[11] = '\xff';
  CHECK(refuses(bytes, "byte 8: the header is said to have 427819"));
  bytes = file(header("|b1", "(2, 3)"), kBytes);
  bytes[8] = bytes[9] = '\0';
  CHECK(refuses(bytes, "byte 10: expected '{', found the end of the header"));
}

TEST_CASE("npy: another magic or version is refused") {
  CHECK(refuses("PK\x03\x04 something", "byte 0: expected the magic of a .npy file, found 'PK\\x03\\x04 s'"));
  std::string bytes = file(header("|b1", "(2, 3)"), kBytes);
  bytes[6] = 4;
  CHECK(refuses(bytes, "byte 6: the version is 4.0; expected 1.0, 2.0 or 3.0"));
}

TEST_CASE("npy: shapes that are not two extents in range are refused") {
  const auto shape = [](const std::string& text) { return file(header("|b1", text), kBytes); };
  CHECK(refuses(shape("(2, 3, 1)"), "the array has more than two dimensions"));
  CHECK(refuses(shape("(6,)"), "the array is 1-D"));
  CHECK(refuses(shape("()"), "the array has no dimensions"));
  CHECK(refuses(shape("(-2, 3)"), "byte 61: rows is '-2'; expected 0 to 16777216"));
  CHECK(refuses(shape("(2, -3)"), "columns is '-3'"));
  CHECK(refuses(shape("(16777217, 0)"), "rows is '16777217'"));
  CHECK(refuses(shape("(99999999999999999999, 0)"), "rows is '99999999999999999999'"));
  CHECK(refuses(shape("(16777216, 16777216)"), "elements of 1 need 281474976710656"));
  CHECK(refuses(shape("(2.0, 3)"), "expected ',', found '.0, 3), }"));
  CHECK(refuses(shape("[2, 3]"), "expected '(', found '[2, 3]"));
  CHECK(refuses(shape("(2, 3]"), "expected ')', found '], }"));
}

TEST_CASE("npy: types other than bool and integer are refused") {
  for (const std::string type :
       {"|O", "<f4", "<f8", "<c8", "|S1", "<U3", "=i4", "|i4", "i4", "<i3", "<i16", ""}) {
    CAPTURE(type);
    CHECK(refuses(file(header(type, "(2, 3)"), kBytes),
                  "byte 20: the type is '" + type + "'; expected bool ('|b1') or an"));
  }
  CHECK(refuses(file("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2, 3), }", kBytes),
                "byte 20: expected a plain type"));
}

TEST_CASE("npy: missing, double and unknown keys are refused") {
  CHECK(refuses(file("{'descr': '|b1', 'fortran_order': False}", kBytes), "the header has no key 'shape'"));
  CHECK(refuses(file("{}", kBytes), "the header has no key 'descr'"));
  CHECK(refuses(file("{'descr': '|b1', 'descr': '|b1'}", kBytes), "byte 27: the key 'descr' appears twice"));
  CHECK(
      refuses(file("{'color': 1}", kBytes), "byte 11: expected the key 'descr', 'fortran_order' or 'shape'"));
  CHECK(refuses(file("{'fortran_order': 1}", kBytes), "expected True or False, found '1}"));
  CHECK(refuses(file("{'descr", kBytes), "this string has no end"));
  CHECK(refuses(file(header("|b1", "(2, 3)") + " x", kBytes),
                "expected blanks up to the end of the header, found 'x"));
  CHECK(refuses(file("{, }", kBytes), "expected a key in quotes"));
}
