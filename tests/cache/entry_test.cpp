#include "cache/entry.h"

#include <cstdint>

#include <doctest/doctest.h>

#include <sparsekiln/digest.h>

#include "scratch_folder.h"

using sparsekiln::Digest;
using sparsekiln::cache::Damage;
using sparsekiln::cache::decode;
using sparsekiln::cache::encode;
using sparsekiln::cache::Identity;

namespace {

Damage damage_of(std::span<const std::byte> bytes) {
  Damage damage = Damage::none;
  const auto entry = decode(bytes, damage);
  CHECK(entry.has_value() == (damage == Damage::none));
  return damage;
}

/// The entry with one place overwritten and a checksum that holds again: what only a lying writer makes.
std::vector<std::byte> forge(std::vector<std::byte> entry, std::size_t offset,
                             std::span<const std::byte> bytes) {
  std::copy(bytes.begin(), bytes.end(), entry.begin() + static_cast<std::ptrdiff_t>(offset));
  const Digest digest = Digest::of(std::span<const std::byte>(entry).first(entry.size() - 16));
  const auto checksum = std::as_bytes(std::span(digest.bytes));
  std::copy(checksum.begin(), checksum.end(), entry.end() - 16);
  return entry;
}

}  // namespace

TEST_CASE("an entry decodes to what was encoded") {
  for (const std::size_t size : {0u, 1u, 1000u, 200'000u}) {
    CAPTURE(size);
    Damage damage = Damage::malformed;
    const auto entry = decode(encode(sample_identity(), payload_of(size)), damage);
    REQUIRE(entry.has_value());
    CHECK(damage == Damage::none);
    CHECK(entry->identity == sample_identity());
    CHECK(entry->payload == payload_of(size));
  }
}

TEST_CASE("an entry has the documented bytes") {
  const auto entry = encode(Identity().add("a", "b"), bytes_of("xyz"));
  const std::string_view head(
      "SPKILN\r\n\1\0\0\0\10\0\0\0\3\0\0\0\0\0\0\0"
      "1 1 a=b\nxyz",
      35);
  REQUIRE(entry.size() == head.size() + 16);
  CHECK(std::vector<std::byte>(entry.begin(), entry.end() - 16) == bytes_of(head));
  CHECK(std::vector<std::byte>(entry.end() - 16, entry.end()) == [&] {
    const Digest digest = Digest::of(head);
    const auto bytes = std::as_bytes(std::span(digest.bytes));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  }());
}

TEST_CASE("an entry with any one bit flipped is refused") {
  const auto entry = encode(sample_identity(), payload_of(300));
  for (std::size_t i = 0; i < entry.size(); ++i) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      auto flipped = entry;
      flipped[i] ^= static_cast<std::byte>(1u << bit);
      CAPTURE(i);
      CHECK(damage_of(flipped) != Damage::none);
    }
  }
}

TEST_CASE("an entry shortened to any length is truncated, and one with an extra byte is malformed") {
  auto entry = encode(sample_identity(), payload_of(300));
  for (std::size_t length = 0; length < entry.size(); ++length) {
    CAPTURE(length);
    // A copy of that size, so that a read past its end is a read past an allocation.
    const std::vector<std::byte> cut(entry.begin(), entry.begin() + static_cast<std::ptrdiff_t>(length));
    CHECK(damage_of(cut) == Damage::truncated);
  }
  entry.push_back(std::byte{0});
  CHECK(damage_of(entry) == Damage::malformed);
}

TEST_CASE("each kind of damage is named") {
  const auto entry = encode(sample_identity(), payload_of(300));
  auto payload_byte = entry;
  payload_byte[entry.size() - 100] ^= std::byte{1};
  CHECK(damage_of(payload_byte) == Damage::checksum);
  CHECK(damage_of(bytes_of("\x7f"
                           "ELF and so on, for long enough to be one")) == Damage::foreign);
  auto version = entry;
  version[8] = std::byte{2};
  CHECK(damage_of(version) == Damage::other_version);
  // Another version may have another frame: its length says nothing to us.
  version.resize(14);
  CHECK(damage_of(version) == Damage::other_version);
}

TEST_CASE("wrong sizes are found although the checksum is right") {
  const auto entry = encode(sample_identity(), payload_of(300));
  const std::vector<std::byte> all_ones(8, std::byte{0xff});
  CHECK(damage_of(forge(entry, 12, std::span(all_ones).first(4))) == Damage::truncated);
  CHECK(damage_of(forge(entry, 16, all_ones)) == Damage::truncated);
  CHECK(damage_of(forge(entry, 12, std::vector<std::byte>(12))) == Damage::malformed);
  // The sum of the two sizes is right modulo 2^64 only.
  const std::uint64_t identity_size = sample_identity().canonical().size();
  const std::uint64_t wrapped = std::uint64_t{300} + identity_size - 0xffffffffu;
  std::vector<std::byte> both(12, std::byte{0xff});
  for (unsigned i = 0; i < 8; ++i) both[4 + i] = static_cast<std::byte>(wrapped >> (8 * i));
  CHECK(damage_of(forge(entry, 12, both)) == Damage::truncated);
}

TEST_CASE("an identity that is not a canonical text is malformed although the checksum is right") {
  const auto entry = encode(sample_identity(), payload_of(300));
  CHECK(damage_of(forge(entry, 24, bytes_of("x"))) == Damage::malformed);
}
