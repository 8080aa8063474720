#include "tools/report_page.h"

#include <sparsekiln/error.h>

namespace sparsekiln::tools {
namespace {

constexpr std::string_view kPlaceOfData = "@DATA@";

/// In JSON "<" occurs only in texts, and "\u003c" there is the same: no "</script>" and no "<!--" is left.
std::string without_tags(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char letter : json)
    if (letter == '<')
      text += "\\u003c";
    else
      text += letter;
  return text;
}

}  // namespace

std::string report_page(const Json& data) {
  std::string page(page_template());
  const std::size_t at = page.find(kPlaceOfData);
  if (at == std::string::npos) throw Error(ErrorKind::internal, "the report's page has no place for data");
  const std::string json = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  return page.replace(at, kPlaceOfData.size(), without_tags(json));
}

}  // namespace sparsekiln::tools
