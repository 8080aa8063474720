#include "compiler/layout_file/npy.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sparsekiln/printable.h>

#include "compiler/layout_file/refusal.h"

// file    = magic, major, minor, length, header, data
// magic   = 0x93 "NUMPY"
// length  = of the header: 16 bits little-endian in version 1.0, 32 bits in 2.0 and 3.0
// header  = "{" 3 × (key ":" value) "}" blanks ["\n"]      a Python literal; keys in any order
//           'descr': '|b1'   'fortran_order': False   'shape': (rows, cols)
// data    = rows × cols elements, and nothing after them

namespace sparsekiln::layout_file {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

/// What the header says.
struct ArrayHeader {
  std::int64_t item_bytes = 0;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t data_begin = 0;
};

/// A cursor over the header's text; offsets in refusals are those of the file.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, std::size_t file_offset, std::string_view name)
      : text_(text), file_offset_(file_offset), name_(name) {}

  [[noreturn]] void refuse(std::string_view what) const { refuse_at_byte(name_, file_offset_ + at_, what); }

  [[noreturn]] void refuse_here(std::string_view expected) const {
    if (at_ == text_.size()) refuse(fmt::format("expected {}, found the end of the header", expected));
    refuse(fmt::format("expected {}, found {}", expected, quoted(text_.substr(at_, 16))));
  }

  /// Steps over blanks and `token`; false, at the token's place, where something else stands.
  bool accept(std::string_view token) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) refuse_here(fmt::format("'{}'", token));
  }

  /// A Python string literal without escapes.
  std::string_view string(std::string_view what) {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') refuse_here(what);
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) refuse("this string has no end");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }

  std::int64_t extent(std::string_view what) {
    skip_blanks();
    std::int64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::invalid_argument) refuse_here(fmt::format("{} (an integer)", what));
    if (error != std::errc{} || value < 0 || value > Layout::kMaxExtent)
      refuse(fmt::format("{} is {}; expected 0 to {}", what, quoted({begin, end}), Layout::kMaxExtent));
    at_ += static_cast<std::size_t>(end - begin);
    // Python 2 wrote its long integers so, and NumPy still reads them.
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
    return value;
  }

  void expect_end() {
    skip_blanks();
    if (at_ < text_.size() && text_[at_] == '\n') ++at_;
    if (at_ != text_.size()) refuse_here("blanks up to the end of the header");
  }

  void skip_blanks() { at_ = std::min(text_.find_first_not_of(' ', at_), text_.size()); }

 private:
  std::string_view text_;
  std::size_t file_offset_;
  std::string_view name_;
  std::size_t at_ = 0;
};

/// Bytes an element; nothing for types other than bool and integers. The byte order of a wider type must be
/// stated, but does not matter: an integer is zero in either order or in none.
std::optional<std::int64_t> item_bytes(std::string_view descr) {
  if (descr.size() != 3) return std::nullopt;
  const bool stated = descr[0] == '<' || descr[0] == '>';
  const std::string_view type = descr.substr(1);
  if (type == "b1" || type == "i1" || type == "u1")
    return stated || descr[0] == '|' ? std::optional(1) : std::nullopt;
  if (!stated || (type[0] != 'i' && type[0] != 'u')) return std::nullopt;
  if (type[1] == '2' || type[1] == '4' || type[1] == '8') return type[1] - '0';
  return std::nullopt;
}

void read_descr(HeaderReader& header, ArrayHeader& array) {
  const HeaderReader before = header;
  const std::string_view type = header.string("a plain type such as '|b1' or '<i4'");
  const auto bytes = item_bytes(type);
  if (!bytes)
    before.refuse(fmt::format("the type is {}; expected bool ('|b1') or an integer ('|u1', '<i4', '>i8' …)",
                              quoted(type)));
  array.item_bytes = *bytes;
}

void read_order(HeaderReader& header, ArrayHeader& array) {
  array.fortran_order = header.accept("True");
  if (!array.fortran_order && !header.accept("False")) header.refuse_here("True or False");
}

void read_shape(HeaderReader& header, ArrayHeader& array) {
  constexpr std::string_view kWanted = "a 2-D shape (rows, columns)";
  header.expect("(");
  if (header.accept(")")) header.refuse(fmt::format("the array has no dimensions; expected {}", kWanted));
  const std::int64_t rows = header.extent("rows");
  header.expect(",");
  if (header.accept(")")) header.refuse(fmt::format("the array is 1-D; expected {}", kWanted));
  array.shape = {rows, header.extent("columns")};
  const bool comma = header.accept(",");
  if (header.accept(")")) return;
  if (comma) header.refuse(fmt::format("the array has more than two dimensions; expected {}", kWanted));
  header.refuse_here("')'");
}

void read_any_shape(HeaderReader& header, ArrayHeader& array) {
  header.expect("(");
  while (!header.accept(")")) {
    array.shape.push_back(header.extent("an extent"));
    if (header.accept(",")) continue;
    header.expect(")");
    return;
  }
}

ArrayHeader read_header(std::string_view text, std::size_t offset, std::string_view name,
                        void (*read_the_shape)(HeaderReader&, ArrayHeader&)) {
  ArrayHeader array;
  array.data_begin = offset + text.size();
  HeaderReader header(text, offset, name);
  bool descr = false;
  bool order = false;
  bool shape = false;
  header.expect("{");
  while (!header.accept("}")) {
    if (descr || order || shape) {
      header.expect(",");
      if (header.accept("}")) break;
    }
    header.skip_blanks();
    const HeaderReader before = header;
    const std::string_view key = header.string("a key in quotes");
    bool* seen = key == "descr"           ? &descr
                 : key == "fortran_order" ? &order
                 : key == "shape"         ? &shape
                                          : nullptr;
    if (seen == nullptr) before.refuse_here("the key 'descr', 'fortran_order' or 'shape'");
    if (*seen) before.refuse(fmt::format("the key '{}' appears twice", printable(key)));
    *seen = true;
    header.expect(":");
    header.skip_blanks();
    if (seen == &descr)
      read_descr(header, array);
    else if (seen == &order)
      read_order(header, array);
    else
      read_the_shape(header, array);
  }
  if (!descr || !order || !shape)
    header.refuse(fmt::format("the header has no key '{}'", !descr   ? "descr"
                                                            : !order ? "fortran_order"
                                                                     : "shape"));
  header.expect_end();
  return array;
}

/// Checks magic, version and length; gives where the header's text is.
std::string_view find_header(std::string_view file, std::string_view name) {
  if (!file.starts_with(kMagic))
    refuse_at_byte(name, 0,
                   fmt::format("expected the magic of a .npy file, found {}", quoted(file.substr(0, 6))));
  if (file.size() < 8) refuse_at_byte(name, file.size(), "the file ends where its version was expected");
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(file[at]));
  };
  const std::size_t major = byte(6);
  if (major < 1 || major > 3 || byte(7) != 0)
    refuse_at_byte(name, 6, fmt::format("the version is {}.{}; expected 1.0, 2.0 or 3.0", major, byte(7)));
  const std::size_t begin = major == 1 ? 10 : 12;
  if (file.size() < begin)
    refuse_at_byte(name, file.size(), "the file ends where the header's length was expected");
  std::size_t length = byte(8) | byte(9) << 8;
  if (major > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > file.size() - begin)
    refuse_at_byte(name, 8,
                   fmt::format("the header is said to have {} bytes, but the file ends after {} of them",
                               length, file.size() - begin));
  return file.substr(begin, length);
}

/// Calls `present(row, column)` for each non-zero element, in the order of the file.
template <typename Present>
void visit(std::string_view data, const ArrayHeader& array, Present present) {
  const std::int64_t outer = array.shape[array.fortran_order ? 1 : 0];
  const std::int64_t inner = array.shape[array.fortran_order ? 0 : 1];
  const char* element = data.data();
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t i = 0; i < inner; ++i, element += array.item_bytes) {
      if (std::all_of(element, element + array.item_bytes, [](char byte) { return byte == 0; })) continue;
      array.fortran_order ? present(i, o) : present(o, i);
    }
  }
}

/// The data of a file, which are as many bytes as its header says.
std::string_view data_of(std::string_view file, const ArrayHeader& array, std::string_view name) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 51;  // 2^24 · 2^24 · 8
  const std::string_view data = file.substr(array.data_begin);
  std::int64_t wanted = array.item_bytes;
  for (const std::int64_t extent : array.shape)
    wanted = extent > 0 && wanted > kMostBytes / extent ? kMostBytes : wanted * extent;
  if (std::ssize(data) < wanted)
    refuse_at_byte(name, file.size(),
                   fmt::format("the file ends after {} bytes of data; {} elements of {} need {}", data.size(),
                               fmt::join(array.shape, " × "), array.item_bytes, wanted));
  if (std::ssize(data) > wanted)
    refuse_at_byte(
        name, array.data_begin + static_cast<std::size_t>(wanted),
        fmt::format("expected the end of the file, found {} more bytes", std::ssize(data) - wanted));
  return data;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Where an element of an array in Fortran order is in row-major order.
std::size_t row_major(std::int64_t number, const std::vector<std::int64_t>& shape) {
  std::int64_t place = 0;
  std::int64_t stride = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  for (const std::int64_t extent : shape) {
    stride /= extent;
    place += number % extent * stride;
    number /= extent;
  }
  return static_cast<std::size_t>(place);
}

struct Array {
  ArrayHeader header;
  std::string_view data;
};
template <class ReadShape>
Array read_array(std::span<const std::byte> bytes, std::string_view name, const ReadShape& shape) {
  const std::string_view file = as_text(bytes);
  const std::string_view text = find_header(file, name);
  const ArrayHeader header =
      read_header(text, static_cast<std::size_t>(text.data() - file.data()), name, shape);
  return {header, data_of(file, header, name)};
}

}  // namespace

NonZeros parse_npy_array(std::span<const std::byte> bytes, std::string_view name) {
  const auto [array, data] = read_array(bytes, name, read_any_shape);
  const auto item = static_cast<std::size_t>(array.item_bytes);
  NonZeros result{array.shape, std::vector<bool>(data.size() / item)};
  for (std::size_t i = 0; i < result.elements.size(); ++i) {
    const std::string_view element = data.substr(i * item, item);
    const bool zero = std::all_of(element.begin(), element.end(), [](char byte) { return byte == 0; });
    const auto number = static_cast<std::int64_t>(i);
    result.elements[array.fortran_order ? row_major(number, array.shape) : i] = !zero;
  }
  return result;
}

Layout parse_npy(std::span<const std::byte> bytes, std::string_view name) {
  const auto [array, data] = read_array(bytes, name, read_shape);
  const std::int64_t rows = array.shape[0];

  // Either order of the file gives ascending columns within a row.
  std::vector<std::int32_t> crow(static_cast<std::size_t>(rows) + 1);
  std::int64_t blocks = 0;
  visit(data, array, [&](std::int64_t row, std::int64_t) { ++crow[row + 1], ++blocks; });
  if (blocks > Layout::kMaxBlocks)
    refuse_at_byte(name, array.data_begin,
                   fmt::format("{} non-zero elements are too many; at most {} are possible", blocks,
                               Layout::kMaxBlocks));
  for (std::int64_t row = 0; row < rows; ++row) crow[row + 1] += crow[row];
  std::vector<std::int32_t> col(static_cast<std::size_t>(blocks));
  std::vector<std::int32_t> next(crow.begin(), crow.end() - 1);
  visit(data, array,
        [&](std::int64_t row, std::int64_t column) { col[next[row]++] = static_cast<std::int32_t>(column); });
  return Layout::from_csr(rows, array.shape[1], std::move(crow), std::move(col));
}

void write_npy(const Layout& layout, const Sink& sink) {
  check_dense(layout, ".npy");
  // The data starts at a multiple of 64 bytes, as NumPy's own files do, so that they can be mapped.
  std::string header = fmt::format("{{'descr': '|b1', 'fortran_order': False, 'shape': ({}, {}), }}",
                                   layout.rows(), layout.cols());
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10, ' ');
  header.back() = '\n';
  sink(kMagic);
  const char version_and_length[] = {1, 0, static_cast<char>(header.size() & 0xff),
                                     static_cast<char>(header.size() >> 8)};
  sink({version_and_length, sizeof version_and_length});
  sink(header);
  std::string line(static_cast<std::size_t>(layout.cols()), '\0');
  for (std::int32_t row = 0; row < layout.rows(); ++row) {
    for (const std::int32_t column : layout.row(row)) line[column] = '\1';
    sink(line);
    for (const std::int32_t column : layout.row(row)) line[column] = '\0';
  }
}

}  // namespace sparsekiln::layout_file
