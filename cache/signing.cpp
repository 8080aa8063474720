#include "cache/signing.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sparsekiln/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/file.h"

namespace sparsekiln::cache {
namespace {

constexpr std::string_view kSecret = "sparsekiln-secret-key-1 ";
constexpr std::string_view kPublic = "sparsekiln-public-key-1 ";
constexpr std::size_t kLargestFile = 64 * 1024;

static_assert(std::tuple_size_v<PublicKey> == crypto_sign_PUBLICKEYBYTES);
static_assert(std::tuple_size_v<Seed> == crypto_sign_SEEDBYTES);
static_assert(std::tuple_size_v<Signature> == crypto_sign_BYTES);

struct Pair {
  PublicKey open;
  std::array<unsigned char, crypto_sign_SECRETKEYBYTES> secret;
  ~Pair() { sodium_memzero(secret.data(), secret.size()); }
};

void start() {
  static const bool started = sodium_init() >= 0;
  if (!started) throw Error(ErrorKind::cache, "libsodium does not start");
}

Pair pair_of(const Seed& seed) {
  Pair pair;
  crypto_sign_seed_keypair(pair.open.data(), pair.secret.data(), seed.data());
  return pair;
}

KeyName name_of(const PublicKey& key) {
  KeyName name{};
  std::copy_n(key.begin(), name.size(), name.begin());
  return name;
}

[[noreturn]] void refuse(const std::filesystem::path& file, std::string_view why) {
  throw Error(ErrorKind::cache, fmt::format("key file {}: {}", file.string(), why));
}

std::array<unsigned char, 32> parse_hex(const std::filesystem::path& file, std::string_view hex) {
  std::array<unsigned char, 32> bytes{};
  std::size_t length = 0;
  if (hex.size() != 2 * bytes.size() ||
      sodium_hex2bin(bytes.data(), bytes.size(), hex.data(), hex.size(), nullptr, &length, nullptr) != 0)
    refuse(file, "a key has 64 hexadecimal digits");
  return bytes;
}

std::string hex_of(const std::array<unsigned char, 32>& bytes) {
  std::array<char, 65> text{};
  sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
  return text.data();
}

const unsigned char* data_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

/// Its whole text, and whether others may read it.
std::string read_own(const std::filesystem::path& file, bool& is_private) {
  const Descriptor descriptor = open_file(file, O_RDONLY | O_NONBLOCK);
  struct stat status{};
  if (!descriptor.open() || ::fstat(descriptor.get(), &status) != 0) refuse(file, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse(file, "it is not a file");
  if (status.st_uid != ::geteuid() && status.st_uid != 0) refuse(file, "it belongs to someone else");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) refuse(file, "others may write it; chmod go-w would do");
  if (static_cast<std::size_t>(status.st_size) > kLargestFile) refuse(file, "it is too long for keys");
  is_private = (status.st_mode & (S_IRGRP | S_IROTH)) == 0;
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  if (read_into(descriptor.get(), bytes) != 0) refuse(file, "it cannot be read");
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Leaves no file where it fails.
void write_new(const std::filesystem::path& file, const std::string& text, mode_t mode) {
  Descriptor descriptor = open_file(file, O_WRONLY | O_CREAT | O_EXCL, mode);
  if (!descriptor.open()) refuse(file, std::strerror(errno));
  int error = write_all(descriptor.get(), std::as_bytes(std::span(text)));
  if (error == 0) error = descriptor.close();
  if (error == 0) return;
  ::unlink(file.c_str());
  refuse(file, std::strerror(error));
}

}  // namespace

Keys Keys::read(const std::filesystem::path& file) {
  start();
  bool is_private = false;
  const std::string text = read_own(file, is_private);
  Keys keys;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    if (line.empty() || line.front() == '#') continue;
    if (line.starts_with(kPublic)) {
      keys.believed_.push_back(parse_hex(file, line.substr(kPublic.size())));
    } else if (line.starts_with(kSecret)) {
      if (!is_private) refuse(file, "others may read its secret key; chmod 600 would do");
      if (keys.seed_) refuse(file, "it has more than one secret key");
      keys.seed_ = parse_hex(file, line.substr(kSecret.size()));
      keys.believed_.push_back(pair_of(*keys.seed_).open);
    } else {
      refuse(file, fmt::format("a line begins with neither '{}' nor '{}'", kPublic, kSecret));
    }
  }
  if (keys.believed_.empty()) refuse(file, "it has no key");
  return keys;
}

void Keys::make(const std::filesystem::path& file) {
  start();
  Seed seed{};
  randombytes_buf(seed.data(), seed.size());
  const std::string open = file.string() + ".pub";
  write_new(open, fmt::format("{}{}\n", kPublic, hex_of(pair_of(seed).open)), 0644);
  try {
    write_new(file, fmt::format("{}{}\n", kSecret, hex_of(seed)), 0600);
  } catch (...) {  // a public key alone is no use, and in the way of the next try
    ::unlink(open.c_str());
    throw;
  }
  sodium_memzero(seed.data(), seed.size());
}

Signature Keys::sign(std::span<const std::byte> message) const {
  if (!seed_) throw Error(ErrorKind::internal, "there is no key to sign with");
  Signature signature{};
  const Pair pair = pair_of(*seed_);
  crypto_sign_detached(signature.data(), nullptr, data_of(message), message.size(), pair.secret.data());
  return signature;
}

KeyName Keys::name() const {
  if (!seed_) throw Error(ErrorKind::internal, "there is no key to sign with");
  return name_of(pair_of(*seed_).open);
}

bool Keys::has(const KeyName& name) const {
  return std::any_of(believed_.begin(), believed_.end(),
                     [&](const PublicKey& key) { return name_of(key) == name; });
}

bool Keys::believes(const KeyName& name, std::span<const std::byte> message,
                    const Signature& signature) const {
  return std::any_of(believed_.begin(), believed_.end(), [&](const PublicKey& key) {
    return name_of(key) == name &&
           crypto_sign_verify_detached(signature.data(), data_of(message), message.size(), key.data()) == 0;
  });
}

}  // namespace sparsekiln::cache
