#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <sparsekiln/problem.h>

namespace sparsekiln {

/// The arithmetic of one element type.
struct ElementFormat {
  std::int32_t significand_bits;  ///< the hidden one included: integers up to 2^significand_bits are exact
  double unit_roundoff;           ///< 2^-significand_bits: the largest relative error of one rounding
  double largest;                 ///< the largest finite value
  double smallest_normal;         ///< the smallest normal number
  double least;                   ///< the distance of the smallest values
};

/// What the templates call an element type; empty where CUDA kernels do not have it in that place.
struct CudaSpelling {
  std::string_view product;  ///< as an operand of tensor cores, templates/product.cuh; f32: by way of tf32
  std::string_view output;   ///< as the type of y, templates/output.cuh
  std::string_view operand;  ///< as an operand that is read as floats, templates/load_batch_rows.cuh
  int least_capability = 0;  ///< the first compute capability whose tensor cores have it (PTX ISA, "mma")
};

/// Which passes of compiler/cpu compute with an element type.
enum class CpuPasses : std::uint8_t {
  tiled,  ///< register tiles and packed panels, written for this type
  plain,  ///< straightforward loops that take any type: compiler/cpu/plain_spmm.h, plain_sddmm.h
};

/// How arrays of an element type are converted in host memory: `count` elements from element `first` on.
/// Values are rounded to the arithmetic type first, as a kernel has them, and then once to the element type.
struct HostConversions {
  void (*to_floats)(const void* from, std::int64_t first, std::span<float> to);
  void (*to_doubles)(const void* from, std::int64_t first, std::span<double> to);
  void (*from_floats)(std::span<const float> from, void* to, std::int64_t first);
  void (*from_doubles)(std::span<const double> from, void* to, std::int64_t first);
};

/// The element type of DLPack tensors (dlpack.h): its DLDataTypeCode and its bits.
struct DlpackType {
  std::uint8_t code;
  std::uint8_t bits;
};

/// Everything that this program knows of one element type. A new type is an enumerator of DType, which
/// kLastDType then is, a row in the table of compiler/element.cpp, and a row in that of
/// compiler/cpu/element_ir.cpp.
struct Element {
  DType value;
  std::string_view name;        ///< as options and identities spell it: "f32"
  std::string_view array_name;  ///< as NumPy and PyTorch spell it: "float32"
  std::size_t bytes;            ///< also its alignment
  /// Products are formed and summed in this type: f32 or f64. Also the type of block scales, dbias and
  /// dblock_scales.
  DType arithmetic;
  /// Whether elements are integers. Products of such operands are summed in int32, and sums converted to
  /// `arithmetic` before anything else is done with them.
  bool integer;
  bool forward_only;               ///< as an operand: neither gradients, nor what an element is rounded for
  std::span<const DType> results;  ///< types of what is computed, the usual one first; empty: no operand
  ElementFormat format;
  HostConversions host;
  DlpackType dlpack;
  CudaSpelling cuda;
  CpuPasses cpu;
  /// The bits of a quiet NaN with a payload that no arithmetic makes: neither the hardware's default, nor
  /// what a conversion of such a NaN gives. For integers a number that is hardly ever a result.
  std::uint64_t unlikely_nan;
};
/// All of them, in the order of DType.
[[nodiscard]] std::span<const Element> elements();
[[nodiscard]] const Element& element(DType type);
[[nodiscard]] inline const ElementFormat& element_format(DType type) { return element(type).format; }

/// Whether elements are floats of 8 bits.
[[nodiscard]] inline bool is_float8(DType type) { return element(type).bytes == 1 && !element(type).integer; }

/// Element i of an array of `type`: exactly, where the arithmetic type is float32; else rounded to float32.
[[nodiscard]] float to_float(DType type, const void* data, std::int64_t i);
/// Elements first, first + 1 … of an array of `type`, converted in the same way.
void to_float(DType type, const void* data, std::int64_t first, std::span<float> to);
/// Element i of an array of `type`, exactly.
[[nodiscard]] double to_double(DType type, const void* data, std::int64_t i);
/// Elements first, first + 1 … of an array of `type`, exactly.
void to_double(DType type, const void* data, std::int64_t first, std::span<double> to);

/// Writes element i, rounded to nearest, ties to even: see HostConversions. A NaN stays a NaN; of integers it
/// is the least one. A value that is too large becomes infinite, or, of a type without infinities, its
/// largest.
void store(DType type, double value, void* data, std::int64_t i);
/// Writes elements first, first + 1 …
void store(DType type, std::span<const float> values, void* data, std::int64_t first);
void store(DType type, std::span<const double> values, void* data, std::int64_t first);

/// To the nearest tf32, of 10 bits of fraction; ties away from zero (PTX ISA, cvt.rna.tf32.f32).
[[nodiscard]] float rounded_to_tf32(float value);

}  // namespace sparsekiln
