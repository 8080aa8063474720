#include "emulator/machine/tensor_map.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "emulator/isa/number.h"

namespace sparsekiln::emulator {
namespace {

constexpr std::uint64_t kMostSize = std::uint64_t{1} << 32;
constexpr std::uint64_t kStridesEnd = std::uint64_t{1} << 40;
constexpr std::uint32_t kMostBox = 256;
constexpr std::uint32_t kMostStep = 8;
constexpr std::uint32_t kUnit = 16;

/// TensorMap in memory.
struct Stored {
  static constexpr std::uint32_t kMagic = 0x544d4150;
  static constexpr std::uint16_t kVersion = 1;

  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint8_t element = 0;
  std::uint8_t rank = 0;
  std::uint8_t interleave = 0;
  std::uint8_t swizzle = 0;
  std::uint8_t fill = 0;
  std::uint8_t unused = 0;
  std::uint32_t given = 0;  ///< a bit for each field, and each dimension of it
  std::uint64_t address = 0;
  std::uint64_t sizes[5] = {};
  std::uint64_t strides[4] = {};
  std::uint16_t box[5] = {};
  std::uint8_t steps[5] = {};
  std::uint8_t unused_end = 0;
  std::uint64_t reserved = 0;
  std::uint64_t checksum = 0;  ///< of all before
};
static_assert(sizeof(Stored) == kTensorMapBytes);

/// FNV-1a by words of eight bytes.
std::uint64_t checksum_of(const Stored& map) {
  std::uint64_t words[offsetof(Stored, checksum) / 8];
  std::memcpy(words, &map, sizeof words);
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const std::uint64_t word : words) sum = (sum ^ word) * 0x100000001b3;
  return sum;
}

bool is_map(const Stored& map) {
  return map.magic == Stored::kMagic && map.version == Stored::kVersion && map.checksum == checksum_of(map) &&
         map.rank <= kMostDimensions;
}

/// The bit of a field in Stored::given.
std::uint32_t bit_of(TensorField field, std::uint32_t dimension) {
  return 1u << (kTensorFields[static_cast<std::size_t>(field)].first_bit + dimension);
}

std::uint32_t dimensions_of(TensorField field, std::uint32_t rank) {
  return field == TensorField::global_stride ? rank - 1 : rank;
}

/// A field that a map of this rank needs and that has never been given; empty: none.
std::string missing_field(const Stored& map) {
  for (const TensorFieldRow& row : kTensorFields) {
    const std::uint32_t many = row.dimensions != 0 ? dimensions_of(row.field, map.rank) : 1;
    for (std::uint32_t d = 0; d < many; ++d)
      if ((map.given & bit_of(row.field, d)) == 0)
        return std::string(row.name) + (row.dimensions != 0 ? " " + std::to_string(d) : "");
  }
  return {};
}

/// Stores a value where it is within [least, most].
template <class To>
std::string set(To& to, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value < least || value > most)
    return "the value " + std::to_string(value) + " is not " + std::to_string(least) + " to " +
           std::to_string(most);
  to = static_cast<To>(value);
  return {};
}

std::string set_field(Stored& map, TensorField field, std::uint32_t dimension, std::uint64_t value) {
  switch (field) {
    case TensorField::global_address:
      map.address = value;
      return {};
    case TensorField::rank:
      if (value >= kMostDimensions) return "the rank " + std::to_string(value + 1) + " is not 1 to 5";
      map.rank = static_cast<std::uint8_t>(value + 1);
      return {};
    case TensorField::box_dim:
      return set(map.box[dimension], value, 1, kMostBox);
    case TensorField::global_dim:
      return set(map.sizes[dimension], value, 1, kMostSize);
    case TensorField::global_stride:
      return set(map.strides[dimension], value, 0, kStridesEnd - 1);
    case TensorField::element_stride:
      return set(map.steps[dimension], value, 1, kMostStep);
    case TensorField::elemtype:
      return set(map.element, value, 0, kTensorElements - 1);
    case TensorField::interleave_layout:
      return set(map.interleave, value, 0, kInterleaves - 1);
    case TensorField::swizzle_mode:
      return set(map.swizzle, value, 0, kSwizzles - 1);
    case TensorField::fill_mode:
      return set(map.fill, value, 0, kFills - 1);
  }
  return "an unknown field";
}

std::string check_dimension(const TensorMap& map, std::uint32_t d) {
  const std::string where = " of dimension " + std::to_string(d) + " is ";
  if (map.sizes[d] == 0 || map.sizes[d] > kMostSize)
    return "the size" + where + std::to_string(map.sizes[d]) + ", not 1 to 2^32";
  if (map.box[d] == 0 || map.box[d] > kMostBox)
    return "the box" + where + std::to_string(map.box[d]) + ", not 1 to 256";
  if ((d > 0 || map.interleave != TensorInterleave::none) && (map.steps[d] == 0 || map.steps[d] > kMostStep))
    return "the element stride" + where + std::to_string(map.steps[d]) + ", not 1 to 8";
  if (d == 0) return {};
  const std::uint64_t unit = map.interleave == TensorInterleave::by_32_bytes ? 32 : kUnit;
  if (map.strides[d - 1] % unit != 0 || map.strides[d - 1] >= kStridesEnd)
    return "the stride" + where + std::to_string(map.strides[d - 1]) + " bytes, no multiple of " +
           std::to_string(unit) + " below 2^40";
  return {};
}

std::string check_layout(const TensorMap& map) {
  if (map.interleave != TensorInterleave::none) {
    if (map.rank < 3) return "a tensor with interleaved channels has at least 3 dimensions";
    if (map.interleave == TensorInterleave::by_32_bytes && map.swizzle != Swizzle::within_32)
      return "an interleave of 32 bytes needs a swizzle within 32 bytes";
    return {};
  }
  const std::uint32_t inner = map.box[0] * bytes_of(map.element);
  if (inner % kUnit != 0)
    return "the box has " + std::to_string(inner) + " bytes in dimension 0, no multiple of 16";
  if (map.swizzle != Swizzle::none && inner > span_of(map.swizzle))
    return "the box has " + std::to_string(inner) + " bytes in dimension 0, more than the " +
           std::to_string(span_of(map.swizzle)) + " of the swizzle";
  return {};
}

/// Elements that the box takes along a dimension.
std::uint32_t taken(const TensorMap& map, std::uint32_t d) {
  const std::uint32_t step = d == 0 ? 1 : map.steps[d];
  return (map.box[d] + step - 1) / step;
}

/// Appends a run, to the one before it where both continue it.
void append(std::vector<BoxRun>& runs, const BoxRun& run) {
  if (!runs.empty()) {
    BoxRun& last = runs.back();
    if (last.address + last.bytes == run.address && last.offset + last.bytes == run.offset) {
      last.bytes += run.bytes;
      return;
    }
  }
  runs.push_back(run);
}

}  // namespace

std::uint32_t bytes_of(TensorElement element) {
  switch (element) {
    case TensorElement::u8:
      return 1;
    case TensorElement::u16:
    case TensorElement::f16:
    case TensorElement::bf16:
      return 2;
    case TensorElement::u64:
    case TensorElement::s64:
    case TensorElement::f64:
      return 8;
    default:
      return 4;
  }
}

bool is_float(TensorElement element) { return element >= TensorElement::f16; }

std::string problem_of(const TensorMap& map) {
  if (map.rank == 0 || map.rank > kMostDimensions)
    return "a tensor of " + std::to_string(map.rank) + " dimensions, not 1 to 5";
  const std::uint64_t unit = map.interleave == TensorInterleave::by_32_bytes ? 32 : kUnit;
  if (map.address % unit != 0) return "the address of the tensor is no multiple of " + std::to_string(unit);
  if (map.fill == TensorFill::nan && !is_float(map.element)) return "elements that are no floats have no NaN";
  for (std::uint32_t d = 0; d < map.rank; ++d)
    if (std::string problem = check_dimension(map, d); !problem.empty()) return problem;
  return check_layout(map);
}

TensorMapBytes encode(const TensorMap& map) {
  Stored stored{.magic = Stored::kMagic,
                .version = Stored::kVersion,
                .element = static_cast<std::uint8_t>(map.element),
                .rank = static_cast<std::uint8_t>(map.rank),
                .interleave = static_cast<std::uint8_t>(map.interleave),
                .swizzle = static_cast<std::uint8_t>(map.swizzle),
                .fill = static_cast<std::uint8_t>(map.fill),
                .given = ~0u,
                .address = map.address};
  std::copy(map.sizes.begin(), map.sizes.end(), stored.sizes);
  std::copy(map.strides.begin(), map.strides.end(), stored.strides);
  for (std::uint32_t d = 0; d < kMostDimensions; ++d) {
    stored.box[d] = static_cast<std::uint16_t>(map.box[d]);
    stored.steps[d] = static_cast<std::uint8_t>(map.steps[d]);
  }
  stored.checksum = checksum_of(stored);
  TensorMapBytes bytes;
  std::memcpy(bytes.data(), &stored, sizeof stored);
  return bytes;
}

std::optional<TensorMap> decode_tensor_map(std::span<const std::byte, kTensorMapBytes> from,
                                           std::string& why) {
  Stored stored;
  std::memcpy(&stored, from.data(), sizeof stored);
  if (!is_map(stored)) {
    why = "no tensor map is there";
    return std::nullopt;
  }
  if ((stored.given & bit_of(TensorField::rank, 0)) == 0) {
    why = "the tensor map was never given its rank";
    return std::nullopt;
  }
  if (const std::string missing = missing_field(stored); !missing.empty()) {
    why = "the tensor map was never given its " + missing;
    return std::nullopt;
  }
  TensorMap map;
  map.address = stored.address;
  map.rank = stored.rank;
  map.element = static_cast<TensorElement>(stored.element);
  map.interleave = static_cast<TensorInterleave>(stored.interleave);
  map.swizzle = static_cast<Swizzle>(stored.swizzle);
  map.fill = static_cast<TensorFill>(stored.fill);
  std::copy(std::begin(stored.sizes), std::end(stored.sizes), map.sizes.begin());
  std::copy(std::begin(stored.strides), std::end(stored.strides), map.strides.begin());
  std::copy(std::begin(stored.box), std::end(stored.box), map.box.begin());
  std::copy(std::begin(stored.steps), std::end(stored.steps), map.steps.begin());
  why = problem_of(map);
  if (!why.empty()) return std::nullopt;
  return map;
}

std::string replace_field(std::span<std::byte, kTensorMapBytes> map, TensorField field,
                          std::uint32_t dimension, std::uint64_t value) {
  Stored stored;
  if (std::all_of(map.begin(), map.end(), [](std::byte byte) { return byte == std::byte{0}; })) {
    stored.magic = Stored::kMagic;
    stored.version = Stored::kVersion;
    // Triton gives no value to fields of an enumeration that are to be zero, and relies on it.
    for (const TensorFieldRow& one : kTensorFields)
      if (one.field >= TensorField::elemtype) stored.given |= bit_of(one.field, 0);
  } else {
    std::memcpy(&stored, map.data(), sizeof stored);
    if (!is_map(stored)) return "no tensor map is there";
  }
  if (std::string problem = set_field(stored, field, dimension, value); !problem.empty()) return problem;
  stored.given |= bit_of(field, dimension);
  stored.checksum = checksum_of(stored);
  std::memcpy(map.data(), &stored, sizeof stored);
  return {};
}

std::uint32_t box_bytes(const TensorMap& map) {
  std::uint32_t bytes = bytes_of(map.element);
  for (std::uint32_t d = 0; d < map.rank; ++d) bytes *= taken(map, d);
  return bytes;
}

std::vector<BoxRun> runs_of_box(const TensorMap& map, const TensorCoordinates& first) {
  const std::uint32_t element = bytes_of(map.element);
  const std::int64_t begin = std::max<std::int64_t>(first[0], 0);
  const std::int64_t end =
      std::min<std::int64_t>(std::int64_t{first[0]} + map.box[0], static_cast<std::int64_t>(map.sizes[0]));
  std::vector<BoxRun> runs;
  if (begin >= end) return runs;
  const std::uint32_t row_bytes = map.box[0] * element;
  const auto bytes = static_cast<std::uint32_t>(end - begin) * element;
  const auto skipped = static_cast<std::uint32_t>(begin - first[0]) * element;

  std::array<std::uint32_t, kMostDimensions> at{};  // of the row in the box
  for (std::uint32_t offset = 0;; offset += row_bytes) {
    bool inside = true;
    std::uint64_t address = map.address + static_cast<std::uint64_t>(begin) * element;
    for (std::uint32_t d = 1; d < map.rank; ++d) {
      const std::int64_t coordinate = std::int64_t{first[d]} + std::int64_t{at[d]} * map.steps[d];
      inside = inside && coordinate >= 0 && coordinate < static_cast<std::int64_t>(map.sizes[d]);
      address += static_cast<std::uint64_t>(coordinate) * map.strides[d - 1];
    }
    if (inside) append(runs, {address, offset + skipped, bytes});
    std::uint32_t d = 1;
    for (; d < map.rank && ++at[d] == taken(map, d); ++d) at[d] = 0;
    if (d >= map.rank) return runs;
  }
}

std::uint64_t fill_bits(const TensorMap& map) {
  if (map.fill == TensorFill::zeros) return 0;
  // The ISA names the NaN that stands for "out of bounds" but not its bits; all bits set but the sign.
  return ~std::uint64_t{0} >> (64 - 8 * bytes_of(map.element)) >> 1;
}

std::uint32_t on_load(TensorElement element, std::uint32_t bits) {
  return converts(element) ? number::narrow_tf32<number::Rounding::nearest_even>(number::float_of(bits))
                           : bits;
}

bool converts(TensorElement element) {
  return element == TensorElement::tf32 || element == TensorElement::tf32_ftz;
}

}  // namespace sparsekiln::emulator
