#include "runtime/stored_layout.h"

#include <cstdint>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/bytes.h"

namespace sparsekiln {

// The byte form, version 1. Integers are little-endian.
//
//   layout  := version rows cols size gaps
//   version := u32                     1
//   rows, cols := i32
//   size    := u64                     bytes of gaps
//   gaps    := (count gap{count}){rows}
//   count   := varint                  blocks of the row
//   gap     := varint                  of the block's column: columns without a block in front of it
//   varint  := LEB128: seven bits a byte, the lowest first; the high bit says that more follow

namespace {

constexpr std::uint32_t kVersion = 1;

void put_varint(std::vector<std::byte>& out, std::uint32_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<std::byte>((value & 0x7f) | 0x80));
  out.push_back(static_cast<std::byte>(value));
}

/// Takes a number of at most `most` off the front.
std::int32_t take_varint(std::span<const std::byte>& bytes, std::int64_t most) {
  std::int64_t value = 0;
  for (int shift = 0; shift < 32; shift += 7) {
    if (bytes.empty()) throw ByteReader::Bad("the end too early");
    const auto byte = std::to_integer<std::int64_t>(bytes.front());
    bytes = bytes.subspan(1);
    value |= (byte & 0x7f) << shift;
    if ((byte & 0x80) != 0) continue;
    if (value > most) throw ByteReader::Bad("more blocks than columns");
    return static_cast<std::int32_t>(value);
  }
  throw ByteReader::Bad("a number that does not end");
}

Layout read_layout(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  if (const auto version = reader.get<std::uint32_t>(); version != kVersion)
    throw ByteReader::Bad(fmt::format("version {}, and this program reads {}", version, kVersion));
  const auto rows = reader.get<std::int32_t>();
  const auto cols = reader.get<std::int32_t>();
  std::span<const std::byte> gaps = reader.get_bytes();
  reader.expect_end();
  // A row has a byte at least, so what is reserved is never more than was read.
  if (rows < 0 || cols < 0 || static_cast<std::size_t>(rows) > gaps.size())
    throw ByteReader::Bad("a grid that the bytes cannot hold");
  std::vector<std::int32_t> crow{0};
  std::vector<std::int32_t> col;
  for (std::int32_t row = 0; row < rows; ++row) {
    std::int64_t next = 0;
    for (std::int32_t left = take_varint(gaps, cols); left > 0; --left) {
      next += take_varint(gaps, cols - next - 1);
      col.push_back(static_cast<std::int32_t>(next++));
    }
    crow.push_back(static_cast<std::int32_t>(col.size()));
  }
  if (!gaps.empty()) throw ByteReader::Bad("bytes after the last row");
  return Layout::from_csr(rows, cols, std::move(crow), std::move(col));
}

}  // namespace

cache::Identity layout_identity(std::string_view digest) {
  cache::Identity identity;
  identity.add("what", "layout").add("layout", digest);
  return identity;
}

std::vector<std::byte> serialize_layout(const Layout& layout) {
  std::vector<std::byte> gaps;
  for (std::int32_t row = 0; row < layout.rows(); ++row) {
    const std::span<const std::int32_t> columns = layout.row(row);
    put_varint(gaps, static_cast<std::uint32_t>(columns.size()));
    std::int32_t next = 0;
    for (const std::int32_t column : columns) {
      put_varint(gaps, static_cast<std::uint32_t>(column - next));
      next = column + 1;
    }
  }
  ByteWriter writer;
  writer.put(kVersion);
  writer.put(layout.rows());
  writer.put(layout.cols());
  writer.put_bytes(gaps);
  return std::move(writer).take();
}

Layout deserialize_layout(std::span<const std::byte> bytes) {
  try {
    return read_layout(bytes);
  } catch (const ByteReader::Bad& bad) {
    throw Error(ErrorKind::cache, fmt::format("cannot read a stored layout: {}", bad.what()));
  } catch (const Error& error) {
    throw Error(ErrorKind::cache, fmt::format("cannot read a stored layout: {}", error.what()));
  }
}

}  // namespace sparsekiln
