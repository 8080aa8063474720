#pragma once

namespace sparsekiln::driver {

/// The processor features that the emulator was compiled for and this host lacks ("AVX2, FMA"); empty if
/// there are none. This file is compiled for any x86-64, unlike the rest.
[[nodiscard]] const char* missing_host_features();

}  // namespace sparsekiln::driver
