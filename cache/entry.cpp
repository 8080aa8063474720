#include "cache/entry.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include <sparsekiln/digest.h>

#include "cache/little_endian.h"

namespace sparsekiln::cache {

// The file format, version 1. Integers are little-endian.
//
//   entry    := magic version identity-size payload-size identity payload checksum
//   magic    := "SPKILN\r\n"           8 bytes; the line end shows a transfer as text
//   version  := u32                    1
//   identity-size := u32               bytes of identity
//   payload-size  := u64               bytes of payload
//   identity := Identity::canonical()
//   payload  := bytes, meaning whatever the writer of this kind of entry says
//   checksum := 16 bytes, XXH3-128 in canonical (big-endian) order, of everything before it
//
// Nothing follows the checksum: a file has exactly one length.
//
// Versions
//   1  first
//
// A reader accepts only its own version. Change the number with any change of the grammar, which includes the
// canonical text of an Identity; entries are cheap to make again, so no reader of old versions is kept.
// Magic, version and their positions never change, so that every version recognizes the others.

namespace {

constexpr std::string_view kMagic = "SPKILN\r\n";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kVersionOffset = 8;
constexpr std::size_t kIdentitySizeOffset = 12;
constexpr std::size_t kPayloadSizeOffset = 16;
constexpr std::size_t kHeaderBytes = 24;
constexpr std::size_t kChecksumBytes = 16;

void append_text(std::vector<std::byte>& out, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

/// Whether the bytes start like an entry of this version.
Damage inspect_start(std::span<const std::byte> bytes) {
  const std::size_t prefix = std::min(bytes.size(), kMagic.size());
  if (prefix > 0 && std::memcmp(bytes.data(), kMagic.data(), prefix) != 0) return Damage::foreign;
  if (bytes.size() < kIdentitySizeOffset) return Damage::truncated;
  if (read_at<std::uint32_t>(bytes, kVersionOffset) != kVersion) return Damage::other_version;
  return bytes.size() < kHeaderBytes ? Damage::truncated : Damage::none;
}

/// What the bytes show before the checksum is computed.
Damage inspect_frame(std::span<const std::byte> bytes) {
  if (const Damage damage = inspect_start(bytes); damage != Damage::none) return damage;
  if (bytes.size() < kHeaderBytes + kChecksumBytes) return Damage::truncated;

  // Sizes are subtracted from what there is instead of added up, so that nothing can overflow.
  std::uint64_t rest = bytes.size() - kHeaderBytes - kChecksumBytes;
  const std::uint64_t identity_size = read_at<std::uint32_t>(bytes, kIdentitySizeOffset);
  const std::uint64_t payload_size = read_at<std::uint64_t>(bytes, kPayloadSizeOffset);
  if (identity_size > rest) return Damage::truncated;
  rest -= identity_size;
  if (payload_size > rest) return Damage::truncated;
  return payload_size == rest ? Damage::none : Damage::malformed;
}

}  // namespace

std::vector<std::byte> encode(const Identity& identity, std::span<const std::byte> payload) {
  const std::string text = identity.canonical();
  std::vector<std::byte> out;
  out.reserve(kHeaderBytes + text.size() + payload.size() + kChecksumBytes);
  append_text(out, kMagic);
  append_integer(out, kVersion);
  append_integer(out, static_cast<std::uint32_t>(text.size()));
  append_integer(out, static_cast<std::uint64_t>(payload.size()));
  append_text(out, text);
  out.insert(out.end(), payload.begin(), payload.end());
  const Digest checksum = Digest::of(std::span<const std::byte>(out));
  const auto bytes = std::as_bytes(std::span(checksum.bytes));
  out.insert(out.end(), bytes.begin(), bytes.end());
  return out;
}

std::string_view name(Damage damage) {
  static constexpr std::string_view kNames[] = {"none",     "truncated", "foreign", "other version",
                                                "checksum", "malformed", "misnamed"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Damage::misnamed) + 1);
  return kNames[static_cast<std::size_t>(damage)];
}

std::optional<StoredEntry> decode(std::span<const std::byte> bytes, Damage& damage) {
  damage = inspect_frame(bytes);
  if (damage != Damage::none) return std::nullopt;

  const auto checked = bytes.first(bytes.size() - kChecksumBytes);
  const Digest expected = Digest::of(checked);
  if (std::memcmp(expected.bytes.data(), bytes.data() + checked.size(), kChecksumBytes) != 0) {
    damage = Damage::checksum;
    return std::nullopt;
  }
  const std::size_t identity_size = read_at<std::uint32_t>(bytes, kIdentitySizeOffset);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kHeaderBytes, identity_size);
  std::optional<Identity> identity = Identity::from_canonical(text);
  if (!identity) {
    damage = Damage::malformed;
    return std::nullopt;
  }
  const auto payload = checked.subspan(kHeaderBytes + identity_size);
  return StoredEntry{std::move(*identity), {payload.begin(), payload.end()}};
}

std::optional<Identity> decode_identity(std::span<const std::byte> start, Damage& damage) {
  damage = inspect_start(start);
  if (damage != Damage::none) return std::nullopt;
  const std::size_t size = read_at<std::uint32_t>(start, kIdentitySizeOffset);
  if (size > start.size() - kHeaderBytes) {
    damage = Damage::truncated;
    return std::nullopt;
  }
  auto identity =
      Identity::from_canonical({reinterpret_cast<const char*>(start.data()) + kHeaderBytes, size});
  if (!identity) damage = Damage::malformed;
  return identity;
}

std::span<const std::byte> payload_beginning(std::span<const std::byte> start) {
  if (inspect_start(start) != Damage::none) return {};
  const std::size_t identity_size = read_at<std::uint32_t>(start, kIdentitySizeOffset);
  const std::span<const std::byte> rest = start.subspan(kHeaderBytes);
  if (identity_size > rest.size()) return {};
  const std::uint64_t payload_size = read_at<std::uint64_t>(start, kPayloadSizeOffset);
  return rest.subspan(identity_size)
      .first(static_cast<std::size_t>(std::min<std::uint64_t>(payload_size, rest.size() - identity_size)));
}

}  // namespace sparsekiln::cache
