#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <sparsekiln/digest.h>

#include "cache/entry.h"
#include "cache/remote.h"

namespace sparsekiln::cache {

// What lies on a server:
//
//  sealed    := magic kind key signature entry
//  magic     := "SKSEALED"
//  kind      := one byte: 1 signed, 0 not
//  key       := the first 8 bytes of the public key: which one to try; zeros if not signed
//  signature := 64 bytes, Ed25519 of context and entry; zeros if not signed
//  entry     := as in the folder (entry.cpp), with its identity
//
// The context keeps a signature from meaning anything else. What was signed names its identity, so that a
// server cannot give out one entry for another.

namespace {

constexpr std::string_view kMagic = "SKSEALED";
constexpr std::string_view kContext = "sparsekiln remote entry 1\n";
constexpr std::size_t kKeyAt = kMagic.size() + 1;
constexpr std::size_t kSignatureAt = kKeyAt + std::tuple_size_v<KeyName>;
constexpr std::size_t kHeader = kSignatureAt + std::tuple_size_v<Signature>;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::byte> signed_text(std::span<const std::byte> entry) {
  std::vector<std::byte> text(kContext.size() + entry.size());
  std::copy(entry.begin(), entry.end(), std::ranges::copy(bytes_of(kContext), text.begin()).out);
  return text;
}

}  // namespace

std::string remote_name(const Identity& identity) {
  const std::string text = identity.canonical();
  return Digest::of(text).hex() + Digest::of("remote " + text).hex();
}

std::vector<std::byte> seal(const Identity& identity, std::span<const std::byte> payload, const Keys& keys) {
  const std::vector<std::byte> entry = encode(identity, payload);
  KeyName key{};
  Signature signature{};
  if (keys.signs()) {
    key = keys.name();
    signature = keys.sign(signed_text(entry));
  }
  std::vector<std::byte> sealed;
  sealed.reserve(kHeader + entry.size());
  const auto append = [&](std::span<const std::byte> bytes) {
    sealed.insert(sealed.end(), bytes.begin(), bytes.end());
  };
  append(bytes_of(kMagic));
  sealed.push_back(static_cast<std::byte>(keys.signs() ? 1 : 0));
  append(std::as_bytes(std::span(key)));
  append(std::as_bytes(std::span(signature)));
  append(entry);
  return sealed;
}

std::optional<std::vector<std::byte>> unseal(const Identity& identity, std::span<const std::byte> bytes,
                                             const Keys& keys, bool believes_unsigned, std::string& why) {
  if (bytes.size() < kHeader || !std::ranges::equal(bytes.first(kMagic.size()), bytes_of(kMagic))) {
    why = "what the server has is no entry";
    return std::nullopt;
  }
  const auto kind = std::to_integer<int>(bytes[kMagic.size()]);
  const auto entry = bytes.subspan(kHeader);
  if (kind == 1) {
    KeyName key{};
    Signature signature{};
    std::memcpy(key.data(), bytes.data() + kKeyAt, key.size());
    std::memcpy(signature.data(), bytes.data() + kSignatureAt, signature.size());
    if (!keys.has(key) || !keys.believes(key, signed_text(entry), signature)) {
      why = "an entry's signature is by no key of SPARSEKILN_REMOTE_KEY, or it was changed";
      return std::nullopt;
    }
  } else if (kind != 0 || !believes_unsigned) {
    why = kind == 0 ? "an entry is not signed" : "an entry is of a later version";
    return std::nullopt;
  }
  Damage damage = Damage::none;
  std::optional<StoredEntry> stored = decode(entry, damage);
  if (!stored || !(stored->identity == identity)) {
    why = fmt::format("an entry is {}", stored ? "that of something else" : name(damage));
    return std::nullopt;
  }
  return std::move(stored->payload);
}

}  // namespace sparsekiln::cache
