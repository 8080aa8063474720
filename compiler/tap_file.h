#pragma once

#include <filesystem>

#include <sparsekiln/convolution.h>

namespace sparsekiln {

/// A convolution with the mask of taps of a file, of any of the shapes [taps], that of the kernel, and either
/// with an axis of blocks in front: .npy of bool or an integer type, or text of 0 and 1, a line for each of
/// its first axis. Throws `invalid_argument` for another file, or where there is a mask already, and `io`.
[[nodiscard]] Convolution with_taps_of(const std::filesystem::path& file, Convolution convolution);

}  // namespace sparsekiln
