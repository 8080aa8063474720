#pragma once

#include <string>
#include <string_view>

#include "compiler/toolchain.h"

namespace sparsekiln::cuda {

// Which driver loads what which NVRTC makes. Versions of CUDA are numbers as cuDriverGetVersion gives them:
// 1000 × major + 10 × minor, 12040 for CUDA 12.4. A driver of version 0 is any driver.

/// "12.4"
[[nodiscard]] std::string version_text(int version);
/// The inverse; 0 for what is no such text.
[[nodiscard]] int parse_version(std::string_view text);

enum class Loads { nothing, cubin, both };
/// The part of a Binary that a driver loads. A cubin needs a driver of at least its NVRTC's major version
/// (CUDA Compatibility, "Minor Version Compatibility"); PTX needs one of at least the whole version, for a
/// driver compiles no PTX that is newer than itself (PTX ISA, "Release Notes").
[[nodiscard]] Loads loads(int driver, int nvrtc);

/// Whether a driver is served better by what NVRTC `a` makes than by what `b` makes: where it loads cubin and
/// PTX rather than the cubin alone, then by the newer one.
[[nodiscard]] bool serves_better(int driver, int a, int b);

/// "driver 550.54.14 (CUDA 12.4)"
[[nodiscard]] std::string describe_driver(const Toolchain& toolchain);

/// The driver that loads the cubins of an NVRTC, for people: "a driver of release 580 or later", or of a CUDA
/// version where the release is not known.
[[nodiscard]] std::string driver_for(int nvrtc);

/// An NVRTC whose cubins and PTX a driver loads, and where to get it, for people; empty where there is none.
[[nodiscard]] std::string nvrtc_for(int driver);

}  // namespace sparsekiln::cuda
