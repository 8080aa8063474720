#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace stub {

/// A byte of a real cubin's head that nothing reads: the stub refuses a cubin where it is not 0.
inline constexpr std::size_t kBrokenMark = 15;

/// The variables of a real cubin, which is trusted, and their sizes in bytes.
std::map<std::string, std::size_t> variables_of_cubin(const std::byte* cubin);

}  // namespace stub
