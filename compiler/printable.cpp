#include <sparsekiln/printable.h>

#include <algorithm>
#include <array>
#include <cstddef>

namespace sparsekiln {
namespace {

/// The character at the front of a text.
struct Character {
  char32_t code = 0;
  std::size_t bytes = 0;  ///< 0: no UTF-8
};

/// Well-formed UTF-8 alone: no overlong form, no surrogate, nothing above U+10FFFF (Unicode 15, table 3-7).
Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (bytes == 0 || text.size() < bytes) return {};
  char32_t code = lead & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (overlong || surrogate || code > 0x10ffff) return {};
  return {code, bytes};
}

struct Range {
  char32_t first, last;
};
constexpr std::array kControls = {
    Range{0x00, 0x1f},        // C0
    Range{0x7f, 0x9f},        // DEL, C1
    Range{0x061c, 0x061c},    // Arabic letter mark
    Range{0x200e, 0x200f},    // left-to-right and right-to-left marks
    Range{0x2028, 0x202e},    // line and paragraph separators, bidirectional embeddings and overrides
    Range{0x2066, 0x206f},    // bidirectional isolates, deprecated format characters
    Range{0xfeff, 0xfeff},    // byte order mark
    Range{0xfff9, 0xfffb},    // interlinear annotations
    Range{0xe0000, 0xe007f},  // tags
};

bool is_printable(char32_t code) {
  return std::none_of(kControls.begin(), kControls.end(),
                      [&](const Range& range) { return code >= range.first && code <= range.last; });
}

/// The bytes at the front of a text that end or indent a line.
std::size_t layout_bytes(std::string_view text) {
  return text.front() == '\n' || text.front() == '\t' ? 1 : text.starts_with("\r\n") ? 2 : 0;
}

/// Whether it is of ASCII, and no control character.
bool is_plain(char letter) { return letter >= 0x20 && letter < 0x7f; }

std::string escaped(std::string_view text, bool lines) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  result.reserve(text.size());
  while (true) {
    const auto plain =
        static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_plain) - text.begin());
    result.append(text, 0, plain);
    text.remove_prefix(plain);
    if (text.empty()) return result;
    const Character next = first_of(text);
    const std::size_t kept = next.bytes != 0 && is_printable(next.code) ? next.bytes
                             : lines                                    ? layout_bytes(text)
                                                                        : 0;
    const std::size_t taken = std::max({kept, next.bytes, std::size_t{1}});
    for (const char letter : text.substr(0, taken)) {
      if (kept != 0) {
        result += letter;
        continue;
      }
      const auto byte = static_cast<unsigned char>(letter);
      result.append("\\x").append({kDigits[byte >> 4], kDigits[byte & 15]});
    }
    text.remove_prefix(taken);
  }
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, false); }
std::string printable_lines(std::string_view text) { return escaped(text, true); }

}  // namespace sparsekiln
