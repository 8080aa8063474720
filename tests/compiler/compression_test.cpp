#include "compiler/compression.h"

#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

namespace sparsekiln {
namespace {

std::vector<std::byte> compressed(std::string_view text) {
  ByteWriter out;
  put_compressed(out, std::as_bytes(std::span(text)));
  return std::move(out).take();
}

std::string read(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const std::vector<std::byte> data = get_compressed(in);
  in.expect_end();
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

TEST_CASE("what was compressed is read back, nothing too, and repetition takes no room") {
  for (const std::string& text : {std::string(), std::string("a"), std::string(100000, 'b') + "c"})
    CHECK(read(compressed(text)) == text);
  CHECK(compressed(std::string(100000, 'b')).size() < 100);
  CHECK(compressed("the same") == compressed("the same"));
}

TEST_CASE("compressed bytes that were cut off, changed or of another size are refused") {
  const std::string text = "some code that is compressed, some code that is not";
  const std::vector<std::byte> whole = compressed(text);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS((void)read(std::span(whole).first(size)), ByteReader::Bad);
  }
  for (std::size_t at = 0; at < 20; ++at) {  // both sizes, and the beginning of the frame
    CAPTURE(at);
    std::vector<std::byte> changed = whole;
    changed[at] ^= std::byte{0x41};
    CHECK_THROWS_AS((void)read(changed), ByteReader::Bad);
  }
  std::vector<std::byte> huge = whole;
  huge[7] = std::byte{0x7f};
  CHECK_THROWS_AS((void)read(huge), ByteReader::Bad);
}

}  // namespace
}  // namespace sparsekiln
