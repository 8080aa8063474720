#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include <sparsekiln/error.h>
#include <sparsekiln/layout.h>

namespace sparsekiln::fuzz {

/// Bytes are either refused as `invalid_argument`, or give a layout that is read back equal from what is
/// written of it.
template <typename Parse, typename Write>
void check_round_trip(std::string_view bytes, Parse parse, Write write) {
  Layout layout;
  try {
    layout = parse(bytes);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_argument) std::abort();
    return;
  }
  // A few bytes can state a large empty grid, whose dense form would take all the time there is.
  if (std::int64_t{layout.rows()} * layout.cols() > 1 << 16 || layout.rows() + layout.cols() > 1 << 16)
    return;
  std::string written;
  write(layout, [&](std::string_view piece) { written += piece; });
  if (parse(written) != layout) std::abort();
}

}  // namespace sparsekiln::fuzz
