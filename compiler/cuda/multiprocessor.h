#pragma once

#include <cstdint>

#include <sparsekiln/target.h>

namespace sparsekiln::cuda {

/// What the CTAs of one streaming multiprocessor share.
struct Multiprocessor {
  std::int64_t shared_bytes = 0;     ///< for all of them
  std::int64_t shared_per_cta = 0;   ///< that one may have where it asks for it, static and dynamic
  std::int64_t shared_reserved = 0;  ///< that the system takes beside what each CTA has
  std::int64_t shared_unit = 0;      ///< in multiples of which it is given
  std::int32_t threads = 0;
  std::int32_t ctas = 0;
};

/// Registers of a multiprocessor, and of a CTA at most: the same in all architectures that have kernels here
/// (the same table).
inline constexpr std::int32_t kRegisterFile = 65536;

/// The limits of the target's architecture: CUDA C++ Programming Guide 13.0, "Technical Specifications per
/// Compute Capability" and, for what is reserved, "Shared Memory" of 8.x; the unit is that of the toolkit's
/// cuda_occupancy.h. An architecture that is not there gets the limits of the next older one.
[[nodiscard]] Multiprocessor multiprocessor(const Target& target);

/// CTAs of so many threads and bytes of shared memory, static and dynamic, that a multiprocessor holds at
/// once, as far as its registers go; 0 where one is too many.
[[nodiscard]] std::int32_t resident_ctas(const Target& target, std::int32_t threads,
                                         std::int64_t shared_bytes);

}  // namespace sparsekiln::cuda
