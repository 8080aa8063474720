#pragma once

#include "activation.cuh"
#include "product.cuh"
#include "ptx.cuh"
#include "ptx_mma.cuh"

// What is done with the units of a tile, 16 bytes each, one thread's one after the other. A loader goes
// through those of a thread with one of these:
//
//   unit<kTo, kFrom, kAlignment>(to, from, bytes)
//
// `to` + kTo in shared memory, `from` + kFrom in global memory, a multiple of kAlignment bytes. Of the unit's
// 16 bytes those from `bytes` on are not read, and are zeros.

namespace sparsekiln {

/// The first elements of a unit, and zeros. A register has no index: each element asks for itself.
template <int kElementBytes>
__device__ __forceinline__ uint4 read_elements(const char* from, int bytes) {
  unsigned words[4];
#pragma unroll
  for (int v = 0; v < 4; ++v) {
    words[v] = 0;
    if constexpr (kElementBytes == 4) {
      if (v * 4 < bytes) words[v] = *reinterpret_cast<const unsigned*>(from + v * 4);
    } else {
      if (v * 4 < bytes) words[v] = *reinterpret_cast<const unsigned short*>(from + v * 4);
      if (v * 4 + 2 < bytes)
        words[v] |= static_cast<unsigned>(*reinterpret_cast<const unsigned short*>(from + v * 4 + 2)) << 16;
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/// Queues asynchronous copies, as wide as the alignment lets them be: of 16, 8 or 4 bytes. There are none of
/// 2 (PTX ISA, "cp.async"): such a unit is read and written at once. kWhole: `bytes` is 16.
template <int kElementBytes, bool kWhole>
struct QueueUnits {
  template <int kTo, int kFrom, int kAlignment = 16>
  __device__ __forceinline__ void unit(unsigned to, const char* from, int bytes) const {
    if constexpr (kAlignment < 4)
      ptx::store_shared(to + static_cast<unsigned>(kTo), read_elements<kElementBytes>(from + kFrom, bytes));
    else if constexpr (kAlignment < 16)
      parts<kTo, kFrom, kAlignment>(to, from, bytes);
    else if constexpr (kWhole)
      ptx::copy_async<kTo, kFrom>(to, from);
    else
      ptx::copy_async<kTo, kFrom>(to, from, bytes);
  }

 private:
  template <int kTo, int kFrom, int kBytes, int kPart = 0>
  __device__ __forceinline__ void parts(unsigned to, const char* from, int bytes) const {
    ptx::copy_async_part<kBytes, kTo + kPart, kFrom + kPart>(to, from, min(max(bytes - kPart, 0), kBytes));
    if constexpr (kPart + kBytes < 16) parts<kTo, kFrom, kBytes, kPart + kBytes>(to, from, bytes);
  }
};

/// Reads a unit into registers. kPartial: `bytes` may be something between 0 and 16.
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

/// Writes it from there to shared memory.
struct PutUnit {
  const uint4& value;
  template <int kTo, int kFrom, int kAlignment = 16>
  __device__ __forceinline__ void unit(unsigned to, const char*, int) const {
    ptx::store_shared(to + static_cast<unsigned>(kTo), value);
  }
};

/// Multiplies it, where it lies in shared memory, by the derivative of a function at the unit kZ bytes from
/// there.
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

/// Scales it there.
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
