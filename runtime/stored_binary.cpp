#include "runtime/stored_binary.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "runtime/request.h"

namespace sparsekiln {

// The byte form:
//
//   payload  := made-for binary
//   made-for := 16 bytes               Identity::key() of the entry
//   binary   := as in compiler/binary.cpp
//
// An entry's checksum says that its bytes are those that were written, but an identity and a payload of two
// entries make a whole entry, too. What a Binary says of itself does not tell them apart: layouts of one size
// have Binaries that differ in nothing but their code.
//
// There is no version: an identity has the digest of the compiler, which one with another grammar differs in.
// Whoever changes this one changes the version of a Binary with it.

namespace {

constexpr std::size_t kKeyBytes = sizeof(Digest::bytes);

[[noreturn]] void refuse(const std::string& wrong) {
  throw Error(ErrorKind::cache, "a stored binary is of another kernel: " + wrong);
}

/// What the code is for, by its own account, against what the entry is.
void check_fields(const cache::Identity& identity, const Binary& binary) {
  for (const auto& [name, value] : stated_fields(binary.operands, binary.target, binary.plan)) {
    const auto& fields = identity.fields();
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&](const auto& one) { return one.first == name; });
    if (field == fields.end()) refuse(fmt::format("its entry does not say its {}", name));
    if (field->second != value)
      refuse(
          fmt::format("its {} is {}, and the entry's {}", name, printable(value), printable(field->second)));
  }
}

}  // namespace

std::vector<std::byte> serialize_binary(const cache::Identity& identity, const Binary& binary) {
  const Digest made_for = identity.key();
  const auto key = std::as_bytes(std::span(made_for.bytes));
  const std::vector<std::byte> bytes = serialize(binary);
  std::vector<std::byte> payload;
  payload.reserve(kKeyBytes + bytes.size());
  payload.insert(payload.end(), key.begin(), key.end());
  payload.insert(payload.end(), bytes.begin(), bytes.end());
  return payload;
}

Binary deserialize_binary(const cache::Identity& identity, std::span<const std::byte> payload) {
  if (payload.size() < kKeyBytes) throw Error(ErrorKind::cache, "a stored binary is damaged: it is cut off");
  Digest made_for;
  std::memcpy(made_for.bytes.data(), payload.data(), kKeyBytes);
  if (made_for != identity.key())
    refuse(
        fmt::format("it was made for the entry {}, and is that of {}", made_for.hex(), identity.key().hex()));
  Binary binary = deserialize(payload.subspan(kKeyBytes));
  check_fields(identity, binary);
  return binary;
}

}  // namespace sparsekiln
