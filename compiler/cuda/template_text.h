#pragma once

#include <set>
#include <string>
#include <string_view>

namespace sparsekiln::cuda {

/// Appends a template with the templates it includes in front of it, each once: NVRTC is given one string.
/// `written`: what the text has by now.
void write_template(std::string& text, std::string_view file, std::set<std::string>& written);

}  // namespace sparsekiln::cuda
