#include "cache/signing.h"

#include <string>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

#include "scratch_folder.h"
#include "tests/system/file_size_limit.h"

using sparsekiln::Error;
using sparsekiln::cache::Keys;
using sparsekiln::cache::Signature;

namespace {

std::string refusal(const std::filesystem::path& file) {
  try {
    static_cast<void>(Keys::read(file));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("what one key has signed, its public key believes, and no other") {
  const ScratchFolder scratch;
  Keys::make(scratch.path() / "a");
  Keys::make(scratch.path() / "b");
  const Keys secret = Keys::read(scratch.path() / "a");
  const Keys open = Keys::read(scratch.path() / "a.pub");
  const Keys other = Keys::read(scratch.path() / "b.pub");
  CHECK(secret.signs());
  CHECK_FALSE(open.signs());
  const auto message = payload_of(1000);
  const Signature signature = secret.sign(message);
  CHECK(secret.believes(secret.name(), message, signature));
  CHECK(open.believes(secret.name(), message, signature));
  CHECK_FALSE(other.believes(secret.name(), message, signature));
  for (const std::size_t at : {0, 500, 999}) {
    auto changed = message;
    changed[at] ^= std::byte{1};
    CHECK_FALSE(open.believes(secret.name(), changed, signature));
  }
  Signature changed = signature;
  changed[10] ^= 1;
  CHECK_FALSE(open.believes(secret.name(), message, changed));
  CHECK_THROWS_AS((void)open.sign(message), Error);
}

TEST_CASE("a file may name several public keys") {
  const ScratchFolder scratch;
  Keys::make(scratch.path() / "a");
  Keys::make(scratch.path() / "b");
  auto both = read_file(scratch.path() / "a.pub");
  const auto b = read_file(scratch.path() / "b.pub");
  const auto comment = bytes_of("\n# builders\n");
  both.insert(both.end(), comment.begin(), comment.end());
  both.insert(both.end(), b.begin(), b.end());
  write_file(scratch.path() / "both", both);
  const Keys keys = Keys::read(scratch.path() / "both");
  const auto message = payload_of(10);
  for (const char* name : {"a", "b"})
    for (const Keys& one : {Keys::read(scratch.path() / name)})
      CHECK(keys.believes(one.name(), message, one.sign(message)));
}

TEST_CASE("a pair of keys is made whole or not at all") {
  const ScratchFolder scratch;
  write_file(scratch.path() / "a.pub", bytes_of("mine"));
  CHECK_THROWS_AS(Keys::make(scratch.path() / "a"), Error);
  CHECK_FALSE(std::filesystem::exists(scratch.path() / "a"));
  write_file(scratch.path() / "b", bytes_of("mine"));
  CHECK_THROWS_AS(Keys::make(scratch.path() / "b"), Error);
  CHECK_FALSE(std::filesystem::exists(scratch.path() / "b.pub"));
  const FileSizeLimit limit(10);
  CHECK_THROWS_WITH_AS(Keys::make(scratch.path() / "c"), doctest::Contains("File too large"), Error);
  CHECK(files_with(scratch.path(), "c").empty());
}

TEST_CASE("key files that are unsafe or no key files are refused, and show no secret") {
  const ScratchFolder scratch;
  const auto file = scratch.path() / "key";
  CHECK(refusal(file).find("No such file") != std::string::npos);
  Keys::make(file);
  CHECK(refusal(file).empty());
  CHECK_THROWS_AS(Keys::make(file), Error);  // never replaced
  ::chmod(file.c_str(), 0640);
  CHECK(refusal(file).find("chmod 600") != std::string::npos);
  ::chmod(file.c_str(), 0620);
  CHECK(refusal(file).find("others may write") != std::string::npos);
  const std::string secret(64, 'a');
  for (const std::string& text :
       {std::string(), "sparsekiln-secret-key-1 " + secret.substr(1), "sparsekiln-secret-key-2 " + secret,
        "sparsekiln-public-key-1 " + secret.substr(1) + "g", secret + "\n",
        "sparsekiln-secret-key-1 " + secret + "\nsparsekiln-secret-key-1 " + secret + "\n"}) {
    CAPTURE(text);
    write_file(file, bytes_of(text));
    const std::string why = refusal(file);
    CHECK_FALSE(why.empty());
    CHECK(why.find("aaaa") == std::string::npos);
  }
  CHECK(refusal(scratch.path()).find("not a file") != std::string::npos);
}
