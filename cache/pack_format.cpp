#include "cache/pack_format.h"

#include <cstring>

#include <fmt/format.h>

#include "cache/little_endian.h"

namespace sparsekiln::cache {

// The file format, version 1. Integers are little-endian.
//
//   pack     := header row* entry*
//   header   := magic version reserved count checksum
//   magic    := "SKPACK\r\n"           8 bytes; the line end shows a transfer as text
//   version  := u32                    1
//   reserved := u32                    0
//   count    := u64                    of rows, and of entries
//   checksum := 16 bytes, XXH3-128 in canonical (big-endian) order, of the header before it and of all rows
//   row      := key offset size        strictly ascending by key, bytewise
//   key      := 16 bytes, Identity::key() of the entry
//   offset   := u64                    from the beginning of the file
//   size     := u64                    bytes of the entry
//   entry    := as in cache/entry.cpp, with a checksum of its own; in the order of the rows
//
// The first entry starts right after the last row, and each other entry where the one before it ends; the
// file ends with the last one. So the same entries have one pack, byte for byte. It contains no time, name or
// path.
//
// Versions
//  1  first
//
// A reader accepts only its own version, and refuses a newer one by name. Magic, version and their positions
// never change. An entry of another version than this program's is treated like such an entry of the store:
// it is intact, and counts as absent.

namespace {

constexpr std::string_view kMagic = "SKPACK\r\n";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kVersionOffset = 8;
constexpr std::size_t kReservedOffset = 12;
constexpr std::size_t kCountOffset = 16;
constexpr std::size_t kChecksumOffset = 24;
constexpr std::size_t kHeaderBytes = 40;
constexpr std::size_t kKeyBytes = 16;
constexpr std::size_t kRowBytes = kKeyBytes + 16;

void append_digest(std::vector<std::byte>& out, const Digest& digest) {
  const auto bytes = std::as_bytes(std::span(digest.bytes));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

/// The checksum of the header before it and of the rows after it.
Digest checksum_of(std::span<const std::byte> header, std::span<const std::byte> rows) {
  std::vector<std::byte> checked(header.begin(), header.begin() + kChecksumOffset);
  checked.insert(checked.end(), rows.begin(), rows.end());
  return Digest::of(std::span<const std::byte>(checked));
}

PackRow row_at(std::span<const std::byte> rows, std::size_t index) {
  const auto bytes = rows.subspan(index * kRowBytes, kRowBytes);
  PackRow row;
  std::memcpy(row.key.bytes.data(), bytes.data(), kKeyBytes);
  row.offset = read_at<std::uint64_t>(bytes, kKeyBytes);
  row.size = read_at<std::uint64_t>(bytes, kKeyBytes + 8);
  return row;
}

/// What the first bytes show, before a row is read; empty if nothing is wrong.
std::string wrong_with_header(std::span<const std::byte> bytes) {
  if (!begins_as_pack(bytes)) return "it is not a pack";
  if (bytes.size() < kReservedOffset) return "it is cut off within its header";
  const auto version = read_at<std::uint32_t>(bytes, kVersionOffset);
  if (version > kVersion)
    return fmt::format(
        "it is a pack of version {}, and this program reads version {}: it was made by a newer Sparsekiln",
        version, kVersion);
  if (version < kVersion) return fmt::format("there is no version {} of packs", version);
  if (bytes.size() < kHeaderBytes) return "it is cut off within its header";
  if (read_at<std::uint32_t>(bytes, kReservedOffset) != 0) return "its reserved field is not 0";
  if (read_at<std::uint64_t>(bytes, kCountOffset) > (bytes.size() - kHeaderBytes) / kRowBytes)
    return "it is cut off within its index";
  return {};
}

}  // namespace

bool begins_as_pack(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

std::vector<std::byte> encode_pack_index(const PackEntries& entries) {
  std::vector<std::byte> header;
  for (const char letter : kMagic) header.push_back(static_cast<std::byte>(letter));
  append_integer(header, kVersion);
  append_integer(header, std::uint32_t{0});
  append_integer(header, static_cast<std::uint64_t>(entries.size()));
  std::vector<std::byte> rows;
  std::uint64_t offset = kHeaderBytes + entries.size() * kRowBytes;
  for (const auto& [key, entry] : entries) {
    append_digest(rows, key);
    append_integer(rows, offset);
    append_integer(rows, static_cast<std::uint64_t>(entry.size()));
    offset += entry.size();
  }
  append_digest(header, checksum_of(header, rows));
  header.insert(header.end(), rows.begin(), rows.end());
  return header;
}

std::vector<PackRow> read_pack_index(std::span<const std::byte> bytes, std::uint64_t pack_size,
                                     std::string& wrong) {
  wrong = wrong_with_header(bytes);
  if (!wrong.empty()) return {};
  const auto count = static_cast<std::size_t>(read_at<std::uint64_t>(bytes, kCountOffset));
  const auto rows = bytes.subspan(kHeaderBytes, count * kRowBytes);
  const Digest expected = checksum_of(bytes, rows);
  if (std::memcmp(expected.bytes.data(), bytes.data() + kChecksumOffset, kKeyBytes) != 0) {
    wrong = "the checksum of its index is wrong";
    return {};
  }
  std::vector<PackRow> read;
  read.reserve(count);
  std::uint64_t end = kHeaderBytes + rows.size();
  for (std::size_t index = 0; index < count; ++index) {
    const PackRow row = row_at(rows, index);
    if (!read.empty() && !(read.back().key < row.key)) wrong = "its index is not in the order of keys";
    if (row.offset != end) wrong = "its entries do not follow each other";
    if (end > pack_size || row.size > pack_size - end) wrong = "it is cut off within its entries";
    if (!wrong.empty()) return {};
    end += row.size;
    read.push_back(row);
  }
  if (end != pack_size) {
    wrong = end > pack_size ? "it is cut off within its entries" : "bytes follow its last entry";
    return {};
  }
  return read;
}

}  // namespace sparsekiln::cache
