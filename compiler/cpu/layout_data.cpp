#include "compiler/cpu/layout_data.h"

#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace sparsekiln::cpu {
namespace {

constexpr std::size_t whole_units(std::size_t bytes) {
  constexpr std::size_t kUnit = TableImage::kAlignment;
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

TableImage image_of(const LayoutData& data) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::size_t kNumberBytes = sizeof(std::int64_t) * kLayoutNumbers;
  TableImage image;
  image.counters = static_cast<std::int32_t>(data[LayoutNumber::counters]);
  std::size_t end = whole_units(kNumberBytes + sizeof(std::int64_t) * TableImage::kArrays);
  for (std::size_t table = 0; table < TableImage::kArrays; ++table) {
    image.offsets[table] = static_cast<std::int64_t>(end);
    end += whole_units(sizeof(std::int32_t) * data.tables[table].size());
  }
  image.bytes.resize(end);
  std::memcpy(image.bytes.data(), data.numbers.data(), kNumberBytes);
  std::memcpy(image.bytes.data() + kNumberBytes, image.offsets.data(), sizeof(image.offsets));
  for (std::size_t table = 0; table < TableImage::kArrays; ++table)
    if (const auto& values = data.tables[table]; !values.empty())
      std::memcpy(image.bytes.data() + image.offsets[table], values.data(),
                  sizeof(std::int32_t) * values.size());
  return image;
}

std::string entry_suffix(const Plan& plan, std::size_t entry) {
  return plan.size() == 1 ? "" : fmt::format("_{}", plan[entry].up_to);
}

void describe(const LayoutData& data, Entry& entry) {
  entry.workers = static_cast<std::int32_t>(data[LayoutNumber::workers]);
  entry.workspace = {data[LayoutNumber::counter_bytes], data[LayoutNumber::tile_bytes],
                     data[LayoutNumber::one_bytes]};
}

}  // namespace sparsekiln::cpu
