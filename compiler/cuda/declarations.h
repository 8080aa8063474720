#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sparsekiln::cuda {

/// The members of a template's Config, as a kernel's source declares them: types first, then numbers, then
/// flags, each in the order in which they were added. A comment stands after its member.
class Declarations {
 public:
  void type(std::string_view name, std::string_view definition, std::string_view comment = {});
  void number(std::string_view name, std::int64_t value, std::string_view comment = {});
  void flag(std::string_view name, bool value, std::string_view comment = {});
  void append(const Declarations& others);

  [[nodiscard]] std::string text() const;

 private:
  std::string types_;
  std::string numbers_;
  std::string flags_;
};

}  // namespace sparsekiln::cuda
