#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sparsekiln::tools {

/// A JSON document of which every value knows its line, so that a reader can say where it is wrong.
struct JsonNode {
  enum class Kind { null, boolean, number, text, list, object };

  Kind kind = Kind::null;
  std::size_t line = 1;  ///< on which it begins; on which it ends, for a number or a text
  bool truth = false;
  std::string text;             ///< of a number as it is written, too
  std::string name;             ///< of a member of an object
  std::vector<JsonNode> items;  ///< of a list; of an object its members, in the file's order, each name once

  /// "a list", "a number" …
  [[nodiscard]] std::string_view kind_name() const;
};

/// Reads JSON. Throws `invalid_argument` as "FILE:LINE: what is wrong", also for a name that an object has
/// twice and for lists in lists in lists beyond 64 deep.
[[nodiscard]] JsonNode parse_json(std::string_view text, const std::filesystem::path& file);

}  // namespace sparsekiln::tools
