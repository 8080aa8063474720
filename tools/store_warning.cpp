#include "tools/store_warning.h"

#include <fmt/format.h>

namespace sparsekiln::tools {

void warn_if_not_kept(const Built& built, Answer& answer) {
  if (built.cache_warning.empty()) return;
  answer.warnings.push_back(fmt::format("what was compiled is not kept: {}", built.cache_warning));
}

void warn_if_not_kept(const Options& options, const Problem& problem, const Binary&, From from,
                      Answer& answer) {
  if (from == From::compiled) warn_if_not_kept(build(problem.layout, options), answer);
}

}  // namespace sparsekiln::tools
