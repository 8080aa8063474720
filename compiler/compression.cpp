#include "compiler/compression.h"

#include <cstdint>
#include <stdexcept>
#include <string>

#include <zstd.h>

namespace sparsekiln {
namespace {

/// Where a higher level gains a few percent and takes several times as long: some milliseconds for a kernel.
constexpr int kLevel = 9;
/// The most bytes of one: no memory is asked for more.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 31;

}  // namespace

void put_compressed(ByteWriter& out, std::span<const std::byte> data) {
  if (data.size() > kMostBytes) throw std::runtime_error("a kernel of more bytes than are read back");
  std::vector<std::byte> compressed(ZSTD_compressBound(data.size()));
  const std::size_t size =
      ZSTD_compress(compressed.data(), compressed.size(), data.data(), data.size(), kLevel);
  if (ZSTD_isError(size) != 0)
    throw std::runtime_error(std::string("zstd cannot compress: ") + ZSTD_getErrorName(size));
  out.put(static_cast<std::uint64_t>(data.size()));
  out.put_bytes(std::span(compressed).first(size));
}

std::vector<std::byte> get_compressed(ByteReader& in) {
  const auto size = in.get<std::uint64_t>();
  const std::span<const std::byte> compressed = in.get_bytes();
  if (size > kMostBytes || ZSTD_getFrameContentSize(compressed.data(), compressed.size()) != size)
    in.fail("compressed bytes of another size");
  std::vector<std::byte> data(static_cast<std::size_t>(size));
  if (ZSTD_decompress(data.data(), data.size(), compressed.data(), compressed.size()) != size)
    in.fail("compressed bytes that cannot be read");
  return data;
}

}  // namespace sparsekiln
