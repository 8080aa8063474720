#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sparsekiln/digest.h>

namespace sparsekiln::cache {

/// All that an entry is identified by: named fields in a fixed order. Two entries are the same if and only if
/// all their fields are.
class Identity {
 public:
  Identity& add(std::string_view field, std::string_view value);
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& fields() const { return fields_; }
  /// One unambiguous text, which includes lengths. It is stored and compared.
  [[nodiscard]] std::string canonical() const;
  /// The inverse of canonical(): empty unless the text is exactly what canonical() writes.
  [[nodiscard]] static std::optional<Identity> from_canonical(std::string_view text);
  /// XXH3-128 of canonical().
  [[nodiscard]] Digest key() const;
  /// The name of the entry's file in the folder of a store.
  [[nodiscard]] std::string file_name() const { return key().hex() + ".entry"; }
  friend bool operator==(const Identity&, const Identity&) = default;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace sparsekiln::cache
