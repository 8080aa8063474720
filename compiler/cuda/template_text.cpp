#include "compiler/cuda/template_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "templates/templates.h"

namespace sparsekiln::cuda {

void write_template(std::string& text, std::string_view file, std::set<std::string>& written) {
  if (!written.insert(std::string(file)).second) return;
  std::string_view rest = templates::text(file);
  std::string own;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    constexpr std::string_view kInclude = "#include \"";
    if (line.starts_with(kInclude)) {
      const std::string_view name = line.substr(kInclude.size());
      write_template(text, name.substr(0, name.find('"')), written);
    } else if (line != "#pragma once") {
      own += line;
      own += '\n';
    }
  }
  text += fmt::format("\n// ---- {}\n", file);
  text += own.substr(own.find_first_not_of('\n'));
}

}  // namespace sparsekiln::cuda
