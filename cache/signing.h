#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace sparsekiln::cache {

// Ed25519 signatures (RFC 8032), by libsodium.

using PublicKey = std::array<unsigned char, 32>;
using Seed = std::array<unsigned char, 32>;  ///< what the secret key is made of
using Signature = std::array<unsigned char, 64>;
using KeyName = std::array<unsigned char, 8>;  ///< the first bytes of a public key

/// The keys of a file: one that signs, if there is one, and those whose signatures are believed.
class Keys {
 public:
  /// Reads a file of lines `sparsekiln-secret-key-1 HEX` (one at most, of the seed) and
  /// `sparsekiln-public-key-1 HEX`; blank lines, and those that begin with #, count for nothing. A secret key
  /// believes its own signatures. Throws Error(cache), which never shows what a line holds: where the file
  /// cannot be read or is no such file, belongs to someone else but root, is writable by others, or holds a
  /// secret that others may read.
  [[nodiscard]] static Keys read(const std::filesystem::path& file);
  /// A new pair: the secret key in `file`, which must not exist, with mode 0600, and the public one in
  /// `file`.pub. Throws Error(cache).
  static void make(const std::filesystem::path& file);

  [[nodiscard]] bool signs() const { return seed_.has_value(); }
  /// The message is not empty. Only where signs().
  [[nodiscard]] Signature sign(std::span<const std::byte> message) const;
  /// The name of the key that signs. Only where signs().
  [[nodiscard]] KeyName name() const;
  /// Whether there is a public key of this name.
  [[nodiscard]] bool has(const KeyName& name) const;
  /// Whether one of this name has signed the message.
  [[nodiscard]] bool believes(const KeyName& name, std::span<const std::byte> message,
                              const Signature& signature) const;

 private:
  std::optional<Seed> seed_;
  std::vector<PublicKey> believed_;
};

}  // namespace sparsekiln::cache
