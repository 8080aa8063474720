#pragma once

namespace sparsekiln::driver {

/// What this host's processor lacks of what the emulator was compiled for ("AVX2, FMA"); empty where nothing.
/// Compiled for any x86-64, unlike what it asks about.
[[nodiscard]] const char* missing_host_features();

}  // namespace sparsekiln::driver
