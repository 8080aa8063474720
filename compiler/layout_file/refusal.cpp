#include "compiler/layout_file/refusal.h"

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

namespace sparsekiln::layout_file {

void refuse_at_byte(std::string_view name, std::size_t offset, std::string_view what) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("layout file '{}', byte {}: {}", printable(name), offset, what));
}

void refuse_at_line(std::string_view name, std::size_t line, std::string_view what) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("layout file '{}', line {}: {}", printable(name), line, what));
}

std::string quoted(std::string_view bytes) {
  constexpr std::size_t kLongest = 32;
  std::string text = "'";
  for (const char byte : bytes.substr(0, kLongest)) {
    if (byte >= 0x20 && byte < 0x7f)
      text += byte;
    else
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return text + (bytes.size() > kLongest ? "…'" : "'");
}

}  // namespace sparsekiln::layout_file
