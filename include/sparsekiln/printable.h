#pragma once

#include <string>
#include <string_view>

namespace sparsekiln {

/// Text of unknown origin (a file's name, a field of a pack, a key of a jobs file), fit for a message or a
/// terminal. Printable UTF-8 stays as it is; every byte of anything else is written as `\xNN`: control
/// characters (C0 with line ends and tabs, DEL, C1), what reorders or breaks lines (bidirectional controls,
/// U+2028 and U+2029), other invisible controls, and bytes that are no UTF-8. Text that is printable already
/// is not changed.
[[nodiscard]] std::string printable(std::string_view text);

/// The equivalent for text of several lines, such as a compiler's log: "\n", "\r\n" and tabs stay.
[[nodiscard]] std::string printable_lines(std::string_view text);

}  // namespace sparsekiln
