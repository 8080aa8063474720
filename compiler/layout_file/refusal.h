#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sparsekiln::layout_file {

/// Throws `invalid_argument`: "layout file 'NAME', byte OFFSET: WHAT".
[[noreturn]] void refuse_at_byte(std::string_view name, std::size_t offset, std::string_view what);

/// Throws `invalid_argument`: "layout file 'NAME', line LINE: WHAT". Lines count from 1.
[[noreturn]] void refuse_at_line(std::string_view name, std::size_t line, std::string_view what);

/// Foreign bytes made fit for a message: in single quotes, shortened, everything but printable ASCII as \xNN.
[[nodiscard]] std::string quoted(std::string_view bytes);

}  // namespace sparsekiln::layout_file
