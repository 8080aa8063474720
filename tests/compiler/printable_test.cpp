#include <sparsekiln/printable.h>

#include <string>
#include <string_view>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

namespace sparsekiln {
namespace {

TEST_CASE("printable text stays as it is, whatever its script") {
  for (const std::string_view text :
       {"", "plain ~!", "back\\slash \\x1b", "Größe 4 × 4 …", "层 слой 🧊", "\xc2\xa0", "\xf4\x8f\xbf\xbd"})
    CHECK(printable(text) == text);
}

TEST_CASE("control characters are shown, not sent") {
  CHECK(printable("\x1b[31mred\x07") == "\\x1b[31mred\\x07");
  CHECK(printable(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(printable("a\r\n\tb\x7f") == "a\\x0d\\x0a\\x09b\\x7f");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\xc2\\x9b31m");  // CSI as one character
}

TEST_CASE("every byte that begins no UTF-8 is shown by itself") {
  CHECK(printable("\x9b\xff") == "\\x9b\\xff");
  CHECK(printable("\xc3(") == "\\xc3(");
  CHECK(printable("cut \xe2\x80") == "cut \\xe2\\x80");
  CHECK(printable("\xc0\x9b \xe0\x80\x9b \xf0\x80\x80\x9b") ==
        "\\xc0\\x9b \\xe0\\x80\\x9b \\xf0\\x80\\x80\\x9b");
  CHECK(printable("\xed\xa0\x80 \xf4\x90\x80\x80 \xf5") == "\\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80 \\xf5");
}

TEST_CASE("what would reorder a line, end it or be invisible is shown") {
  for (const std::string_view code : {"\xd8\x9c", "\xe2\x80\x8e", "\xe2\x80\xa8", "\xe2\x80\xae",
                                      "\xe2\x81\xa6", "\xef\xbb\xbf", "\xef\xbf\xb9", "\xf3\xa0\x80\x81"}) {
    const std::string shown = printable(code);
    CHECK(shown.starts_with("\\x"));
    CHECK(shown.size() == 4 * code.size());
  }
}

TEST_CASE("of several lines the line ends and tabs stay, and nothing else that is no text") {
  CHECK(printable_lines("a\n\tb\r\nc") == "a\n\tb\r\nc");
  CHECK(printable_lines("a\rb\x1b\v\n") == "a\\x0db\\x1b\\x0b\n");
}

TEST_CASE("what is printable already is not changed by doing it again") {
  const std::string once = printable("\x1b\n\xff é");
  CHECK(printable(once) == once);
  CHECK(printable_lines(once) == once);
}

TEST_CASE("the message and the log of an Error are printable") {
  const Error error(ErrorKind::io, "no \x1b[2J\xff\nhere", "log\x1b\n");
  CHECK(std::string_view(error.what()) == "no \\x1b[2J\\xff\nhere");
  CHECK(error.log() == "log\\x1b\n");
}

}  // namespace
}  // namespace sparsekiln
