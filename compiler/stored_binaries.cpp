#include "compiler/stored_binaries.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include <sparsekiln/error.h>

#include "compiler/bytes.h"
#include "compiler/cuda/compatibility.h"

// The byte form, all fields little-endian:
//   payload := magic:u32 version:u32 made-for:16 bytes count:u64 row* binary*
//   made-for := the key of the identity it is stored under
//   row     := nvrtc:u32 size:u64      strictly descending by nvrtc
//   binary  := as compiler/binary.cpp writes it, of the row's size; in the order of the rows, nothing follows
//
// What a Binary says of itself does not tell two entries apart: layouts of one size have Binaries that differ
// in nothing but their code and data. Hence made-for.
//
// The rows stand in front, so that a listing need not read the binaries. Before version 1 a payload was one
// binary without rows, which begins with its own version instead of the magic: it is refused. No program asks
// for one, for the compiler's digest is part of the identity it is stored under.

namespace sparsekiln {
namespace {

constexpr std::uint32_t kMagic = 0x53424b53;  // "SKBS"
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kRowBytes = 12;

struct Row {
  int nvrtc;
  std::uint64_t size;
};

struct Head {
  Digest made_for;
  std::vector<Row> rows;
};

Head read_head(ByteReader& in, std::size_t most) {
  Head head;
  if (in.get<std::uint32_t>() != kMagic) in.fail("not the binaries of a kernel");
  if (in.get<std::uint32_t>() != kVersion) in.fail("another version");
  const std::span<const std::byte> key = in.take(sizeof(head.made_for.bytes));
  std::memcpy(head.made_for.bytes.data(), key.data(), key.size());
  const auto count = in.get<std::uint64_t>();
  if (count == 0 || count > most / kRowBytes) in.fail("a count that cannot be");
  std::vector<Row>& rows = head.rows;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto nvrtc = static_cast<int>(in.get<std::uint32_t>());
    rows.push_back({nvrtc, in.get<std::uint64_t>()});
    if (nvrtc < 0 || (i > 0 && nvrtc >= rows[i - 1].nvrtc)) in.fail("versions that do not descend");
  }
  return head;
}

[[noreturn]] void refuse(const ByteReader::Bad& bad) {
  throw Error(
      ErrorKind::cache,
      std::string("the stored binaries of a kernel are damaged, or of another version: ") + bad.what());
}

}  // namespace

int nvrtc_version(const Binary& binary) {
  constexpr std::string_view kName = "NVRTC ";
  const std::string_view compiler = binary.compiler;
  return compiler.starts_with(kName) ? cuda::parse_version(compiler.substr(kName.size())) : 0;
}

std::vector<StoredBinary> stored_binaries(std::span<const std::byte> payload) {
  try {
    ByteReader in(payload);
    std::vector<StoredBinary> binaries;
    for (const Row& row : read_head(in, payload.size()).rows)
      binaries.push_back({row.nvrtc, in.take(row.size)});
    in.expect_end();
    return binaries;
  } catch (const ByteReader::Bad& bad) {
    refuse(bad);
  }
}

Digest made_for(std::span<const std::byte> payload) {
  try {
    ByteReader in(payload);
    return read_head(in, payload.size()).made_for;
  } catch (const ByteReader::Bad& bad) {
    refuse(bad);
  }
}

std::vector<int> stored_versions(std::span<const std::byte> beginning) {
  try {
    ByteReader in(beginning);
    std::vector<int> versions;
    for (const Row& row : read_head(in, beginning.size()).rows) versions.push_back(row.nvrtc);
    return versions;
  } catch (const ByteReader::Bad&) {
    return {};
  }
}

std::vector<StoredBinary> loadable(std::vector<StoredBinary> binaries, const Toolchain& toolchain) {
  const int driver = toolchain.driver_version;
  std::erase_if(binaries, [&](const StoredBinary& one) {
    return cuda::loads(driver, one.nvrtc) == cuda::Loads::nothing;
  });
  std::stable_sort(binaries.begin(), binaries.end(), [&](const StoredBinary& a, const StoredBinary& b) {
    return cuda::serves_better(driver, a.nvrtc, b.nvrtc);
  });
  return binaries;
}

std::string versions_text(const std::set<int>& versions) {
  std::string text;
  for (const int version : versions) text += (text.empty() ? "" : " and ") + cuda::version_text(version);
  return text;
}

Binary deserialize(const StoredBinary& stored) {
  Binary binary = deserialize(stored.bytes);
  if (nvrtc_version(binary) != stored.nvrtc)
    throw Error(ErrorKind::cache, "a stored binary is damaged: another compiler made it than its row says");
  return binary;
}

std::vector<Binary> deserialize_all(std::span<const std::byte> payload) {
  std::vector<Binary> binaries;
  for (const StoredBinary& stored : stored_binaries(payload)) binaries.push_back(deserialize(stored));
  return binaries;
}

std::vector<std::byte> store_binaries(const Digest& made_for, std::span<const StoredBinary> binaries) {
  std::vector<StoredBinary> rows(binaries.begin(), binaries.end());
  const auto newer = [](const StoredBinary& a, const StoredBinary& b) { return a.nvrtc > b.nvrtc; };
  std::stable_sort(rows.begin(), rows.end(), newer);
  const auto same = [](const StoredBinary& a, const StoredBinary& b) { return a.nvrtc == b.nvrtc; };
  rows.erase(std::unique(rows.begin(), rows.end(), same), rows.end());
  ByteWriter out;
  out.put(kMagic);
  out.put(kVersion);
  for (const auto byte : made_for.bytes) out.put(static_cast<std::uint8_t>(byte));
  out.put(static_cast<std::uint64_t>(rows.size()));
  for (const StoredBinary& row : rows) {
    out.put(static_cast<std::uint32_t>(row.nvrtc));
    out.put(static_cast<std::uint64_t>(row.bytes.size()));
  }
  std::vector<std::byte> payload = std::move(out).take();
  for (const StoredBinary& row : rows) payload.insert(payload.end(), row.bytes.begin(), row.bytes.end());
  return payload;
}

std::vector<std::byte> store_binary(const Digest& made_for, const Binary& binary,
                                    std::span<const StoredBinary> others) {
  const std::vector<std::byte> bytes = serialize(binary);
  std::vector<StoredBinary> all{{nvrtc_version(binary), bytes}};
  all.insert(all.end(), others.begin(), others.end());
  return store_binaries(made_for, all);
}

}  // namespace sparsekiln
