#pragma once

namespace sparsekiln {

/// A CUtensorMap (cuda.h, which NVRTC does not see): opaque, for instructions that are given its address. A
/// kernel takes it as `const __grid_constant__`, so that the address is that of the parameter.
struct alignas(128) TensorMap {
  unsigned long long opaque[16];
};

}  // namespace sparsekiln
