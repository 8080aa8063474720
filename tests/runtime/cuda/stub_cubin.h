#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace stub {

/// The variables of a real cubin, which is trusted, and their sizes in bytes.
std::map<std::string, std::size_t> variables_of_cubin(const std::byte* cubin);

}  // namespace stub
