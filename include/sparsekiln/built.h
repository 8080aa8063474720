#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <sparsekiln/binary.h>
#include <sparsekiln/digest.h>

namespace sparsekiln {

/// Where a Binary came from: made now; the store (its folder, or its memory where that cannot be written); a
/// kernel of this process, or an equal request that was under way; a pack (Options::packs).
enum class From : std::uint8_t { compiled, store, memory, pack };
[[nodiscard]] std::string_view name(From from);

/// A Binary as `build` found or made it. With attached tables: what all layouts share, and this layout.
struct Built {
  std::shared_ptr<const Binary> binary;
  From from = From::compiled;
  Digest key;             ///< of the identity; in hexadecimal, the name of its file in the store
  double compile_ms = 0;  ///< wall time inside build
  /// Why the Binary is not kept on disk, so that other processes will make it again: what was asked, what is
  /// wrong and what would work. Empty where it is kept.
  std::string cache_warning;
  /// The faults of packs that the environment names, and that were therefore passed over. Empty where there
  /// are none.
  std::string pack_warning;
};

}  // namespace sparsekiln
