#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Tensor maps of tiled mode (PTX ISA 5.5): what they describe, the bytes that hold one, and which bytes of
/// memory a box of it has. Pure functions.
namespace sparsekiln::emulator {

/// Numbered as `tensormap.replace` numbers them (PTX ISA 9.7.9.28, table 33), which is not as cuda.h does.
enum class TensorElement : std::uint8_t {
  u8,
  u16,
  u32,
  s32,
  u64,
  s64,
  f16,
  f32,
  f32_ftz,
  f64,
  bf16,
  tf32,
  tf32_ftz,
};
inline constexpr std::uint32_t kTensorElements = static_cast<std::uint32_t>(TensorElement::tf32_ftz) + 1;
[[nodiscard]] std::uint32_t bytes_of(TensorElement element);
[[nodiscard]] bool is_float(TensorElement element);

/// Chunks of 16 bytes are exchanged within 32, 64 or 128 bytes of shared memory. As `tensormap.replace`
/// numbers them.
enum class Swizzle : std::uint8_t { none, within_32, within_64, within_128 };
inline constexpr std::uint32_t kSwizzles = static_cast<std::uint32_t>(Swizzle::within_128) + 1;
/// 32, 64 or 128; 0 for none.
[[nodiscard]] inline std::uint32_t span_of(Swizzle swizzle) {
  return swizzle == Swizzle::none ? 0 : 16u << static_cast<std::uint32_t>(swizzle);
}
/// Where the byte lies that has this shared address without a swizzle (PTX ISA 5.5.7: the pattern depends on
/// the address, not on where a box begins).
[[nodiscard]] inline std::uint32_t swizzled(Swizzle swizzle, std::uint32_t address) {
  const std::uint32_t chunks = swizzle == Swizzle::none ? 1 : span_of(swizzle) / 16;
  return address ^ (address >> 7 & (chunks - 1)) << 4;
}

enum class TensorInterleave : std::uint8_t { none, by_16_bytes, by_32_bytes };
inline constexpr std::uint32_t kInterleaves = 3;
enum class TensorFill : std::uint8_t { zeros, nan };
inline constexpr std::uint32_t kFills = 2;

inline constexpr int kMostDimensions = 5;

/// A tensor in global memory and the box of it that one copy moves. Dimension 0 is the innermost.
struct TensorMap {
  std::uint64_t address = 0;
  std::uint32_t rank = 1;
  TensorElement element = TensorElement::u8;
  TensorInterleave interleave = TensorInterleave::none;
  Swizzle swizzle = Swizzle::none;
  TensorFill fill = TensorFill::zeros;
  std::array<std::uint64_t, kMostDimensions> sizes{};        ///< elements
  std::array<std::uint64_t, kMostDimensions - 1> strides{};  ///< bytes; [0] is that of dimension 1
  std::array<std::uint32_t, kMostDimensions> box{};          ///< elements, skipped ones among them
  std::array<std::uint32_t, kMostDimensions> steps{};  ///< each how many-th element is taken; [0] is ignored

  friend bool operator==(const TensorMap&, const TensorMap&) = default;
};

/// What about these parameters is not allowed (CUDA Driver API 13.0, cuTensorMapEncodeTiled); empty: nothing.
[[nodiscard]] std::string problem_of(const TensorMap& map);

// ---- as 128 bytes ----
// The layout is this emulator's own; programs may not look into it. It has a number that other data do not
// have, says which fields were ever given a value, and ends with a checksum: what no driver and no
// tensormap.replace has made is recognized.

inline constexpr std::size_t kTensorMapBytes = 128;
/// Where a map may lie in memory (cuda.h, CUtensorMap).
inline constexpr std::size_t kTensorMapAlignment = 64;
using TensorMapBytes = std::array<std::byte, kTensorMapBytes>;

[[nodiscard]] TensorMapBytes encode(const TensorMap& map);
/// The map in these bytes, with problem_of() empty. Nothing where there is none; then `why` says so.
[[nodiscard]] std::optional<TensorMap> decode_tensor_map(std::span<const std::byte, kTensorMapBytes> from,
                                                         std::string& why);

/// The fields of `tensormap.replace.tile`.
enum class TensorField : std::uint8_t {
  global_address,
  rank,
  box_dim,
  global_dim,
  global_stride,
  element_stride,
  elemtype,
  interleave_layout,
  swizzle_mode,
  fill_mode,
};
struct TensorFieldRow {
  std::string_view name;
  TensorField field;
  std::uint32_t first_bit;   ///< of those that say which fields were given a value, one for each dimension
  std::uint32_t dimensions;  ///< at most; 0: the field is none of a dimension's
};
inline constexpr TensorFieldRow kTensorFields[] = {
    {"global_address", TensorField::global_address, 0, 0},
    {"rank", TensorField::rank, 1, 0},
    {"box_dim", TensorField::box_dim, 8, 5},
    {"global_dim", TensorField::global_dim, 13, 5},
    {"global_stride", TensorField::global_stride, 18, 4},
    {"element_stride", TensorField::element_stride, 23, 5},
    {"elemtype", TensorField::elemtype, 2, 0},
    {"interleave_layout", TensorField::interleave_layout, 3, 0},
    {"swizzle_mode", TensorField::swizzle_mode, 4, 0},
    {"fill_mode", TensorField::fill_mode, 5, 0},
};
/// Gives one field a value as the instruction has it: the rank less one, the stride in bytes. 128 bytes of
/// zeros are a map whose enumerations are zero, without any other field. Returns why it cannot be done;
/// empty: done.
[[nodiscard]] std::string replace_field(std::span<std::byte, kTensorMapBytes> map, TensorField field,
                                        std::uint32_t dimension, std::uint64_t value);

// ---- a box ----

using TensorCoordinates = std::array<std::int32_t, kMostDimensions>;

/// Bytes of a box that are neighbors in both memories, apart from the swizzle.
struct BoxRun {
  std::uint64_t address = 0;  ///< global
  std::uint32_t offset = 0;   ///< from the start of the box in shared memory
  std::uint32_t bytes = 0;

  friend bool operator==(const BoxRun&, const BoxRun&) = default;
};
/// What a box takes in shared memory, and what its copy counts for an mbarrier: elements outside of the
/// tensor included.
[[nodiscard]] std::uint32_t box_bytes(const TensorMap& map);
/// The parts of a box that are within the tensor, in ascending order of their offsets, as few as possible.
/// Everything else of the box is outside.
[[nodiscard]] std::vector<BoxRun> runs_of_box(const TensorMap& map, const TensorCoordinates& first);

/// The bytes that stand for an element outside of the tensor.
[[nodiscard]] std::uint64_t fill_bits(const TensorMap& map);
/// What becomes of four bytes on their way to shared memory: TFLOAT32 is rounded to the nearest (PTX ISA
/// 5.5.1). FTZ types keep subnormal numbers, as on an H100.
[[nodiscard]] std::uint32_t on_load(TensorElement element, std::uint32_t bits);
/// Whether on_load changes anything.
[[nodiscard]] bool converts(TensorElement element);

}  // namespace sparsekiln::emulator
