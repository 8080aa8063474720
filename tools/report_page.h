#pragma once

#include <string>
#include <string_view>

#include "tools/answer.h"

namespace sparsekiln::tools {

/// The page without data: one HTML document that has styles, scripts and the plotting library in it. It is
/// put together from report/ by report/embed_page.py when this program is built.
[[nodiscard]] std::string_view page_template();

/// The page that shows `data`: `problems` of describe_in_full, and `comparison` where there is one. Asks no
/// network. Texts in the data are of unknown origin: none of them can end the element that holds them.
[[nodiscard]] std::string report_page(const Json& data);

}  // namespace sparsekiln::tools
