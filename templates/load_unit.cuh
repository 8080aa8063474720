#pragma once

#include "activation.cuh"
#include "product.cuh"
#include "ptx.cuh"
#include "ptx_mma.cuh"

// Operations on the units of a tile, 16 bytes each. A loader applies one of these operations to the units of
// a thread, one after the other:
//
//  unit<kTo, kFrom, kAlignment>(to, from, bytes)
//
// The unit goes to `to` + kTo in shared memory and comes from `from` + kFrom in global memory, an address
// that is a multiple of kAlignment bytes. Only the first `bytes` of its 16 bytes are read; the others become
// zeros.

namespace sparsekiln {

/// Reads the first elements of a unit; the others are zeros. Registers cannot be indexed, so there is a
/// condition for each element.
template <int kElementBytes>
__device__ __forceinline__ uint4 read_elements(const char* from, int bytes) {
  unsigned words[4];
#pragma unroll
  for (int v = 0; v < 4; ++v) {
    words[v] = 0;
    if constexpr (kElementBytes == 4) {
      if (v * 4 < bytes) words[v] = *reinterpret_cast<const unsigned*>(from + v * 4);
    } else if constexpr (kElementBytes == 1) {
#pragma unroll
      for (int byte = 0; byte < 4; ++byte)
        if (v * 4 + byte < bytes)
          words[v] |= static_cast<unsigned>(*reinterpret_cast<const unsigned char*>(from + v * 4 + byte))
                      << byte * 8;
    } else {
      if (v * 4 < bytes) words[v] = *reinterpret_cast<const unsigned short*>(from + v * 4);
      if (v * 4 + 2 < bytes)
        words[v] |= static_cast<unsigned>(*reinterpret_cast<const unsigned short*>(from + v * 4 + 2)) << 16;
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/// Queues asynchronous copies of 16, 8 or 4 bytes, as the alignment allows. There are none of 2 bytes (PTX
/// ISA, "cp.async"), so such a unit is read and written at once. kWhole: `bytes` is always 16.
template <int kElementBytes, bool kWhole>
struct QueueUnits {
  template <int kTo, int kFrom, int kAlignment = 16>
  __device__ __forceinline__ void unit(unsigned to, const char* from, int bytes) const {
    if constexpr (kAlignment < 4)
      ptx::store_shared(to + static_cast<unsigned>(kTo), read_elements<kElementBytes>(from + kFrom, bytes));
    else if constexpr (kAlignment < 16)
      pieces<kTo, kFrom, kAlignment>(to, from, bytes);
    else if constexpr (kWhole)
      ptx::copy_async<kTo, kFrom>(to, from);
    else
      ptx::copy_async<kTo, kFrom>(to, from, bytes);
  }

 private:
  template <int kTo, int kFrom, int kBytes, int kPiece = 0>
  __device__ __forceinline__ void pieces(unsigned to, const char* from, int bytes) const {
    ptx::copy_async_part<kBytes, kTo + kPiece, kFrom + kPiece>(to, from, min(max(bytes - kPiece, 0), kBytes));
    if constexpr (kPiece + kBytes < 16) pieces<kTo, kFrom, kBytes, kPiece + kBytes>(to, from, bytes);
  }
};

/// Reads a unit into registers. kPartial: `bytes` may be between 0 and 16.
template <int kElementBytes, bool kPartial>
struct FetchUnit {
  uint4& into;
  template <int kTo, int kFrom, int kAlignment = 16>
  __device__ __forceinline__ void unit(unsigned, const char* from, int bytes) const {
    into = make_uint4(0, 0, 0, 0);
    if (kAlignment < 16 || (kPartial && bytes > 0 && bytes < 16))
      into = read_elements<kElementBytes>(from + kFrom, bytes);
    else if (bytes > 0)
      into = *reinterpret_cast<const uint4*>(from + kFrom);
  }
};

/// Writes a unit from registers to shared memory.
struct PutUnit {
  const uint4& value;
  template <int kTo, int kFrom, int kAlignment = 16>
  __device__ __forceinline__ void unit(unsigned to, const char*, int) const {
    ptx::store_shared(to + static_cast<unsigned>(kTo), value);
  }
};

/// Multiplies a unit in shared memory by the derivative of a function at the unit kZ bytes further on.
template <class Product, class Function, int kZ>
struct DeriveUnit {
  template <int kTo, int kFrom, int kAlignment = 16>
  __device__ __forceinline__ void unit(unsigned to, const char*, int) const {
    unsigned words[4];
    unsigned z[4];
    ptx::load_shared<kTo>(words, to);
    ptx::load_shared<kTo + kZ>(z, to);
#pragma unroll
    for (int v = 0; v < 4; ++v)
      words[v] = changed<Product>(words[v], z[v],
                                  [](float value, float at) { return value * Function::derivative(at); });
    ptx::store_shared(to + static_cast<unsigned>(kTo), make_uint4(words[0], words[1], words[2], words[3]));
  }
};

/// Rounds a unit in shared memory to what the tensor cores take.
template <class Product>
struct RoundUnit {
  template <int kTo, int kFrom, int kAlignment = 16>
  __device__ __forceinline__ void unit(unsigned to, const char*, int) const {
    unsigned words[4];
    ptx::load_shared<kTo>(words, to);
    ptx::store_shared(to + static_cast<unsigned>(kTo),
                      make_uint4(Product::convert(words[0]), Product::convert(words[1]),
                                 Product::convert(words[2]), Product::convert(words[3])));
  }
};

/// Multiplies a unit in shared memory by a factor.
template <class Product>
struct ScaleUnit {
  float factor;
  template <int kTo, int kFrom, int kAlignment = 16>
  __device__ __forceinline__ void unit(unsigned to, const char*, int) const {
    unsigned words[4];
    ptx::load_shared<kTo>(words, to);
#pragma unroll
    for (int v = 0; v < 4; ++v)
      words[v] = changed<Product>(words[v], 0, [this](float value, float) { return value * factor; });
    ptx::store_shared(to + static_cast<unsigned>(kTo), make_uint4(words[0], words[1], words[2], words[3]));
  }
};

}  // namespace sparsekiln
