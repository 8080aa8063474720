#pragma once

#include <cstdlib>

#include <doctest/doctest.h>

namespace sparsekiln::cuda {

/// Cases that compile fail where NVRTC is missing, unless SPARSEKILN_ALLOW_NO_NVRTC says that this is known.
inline doctest::skip need_nvrtc() {
  return doctest::skip(std::getenv("SPARSEKILN_ALLOW_NO_NVRTC") != nullptr);
}

}  // namespace sparsekiln::cuda
