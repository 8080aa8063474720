#include "tools/store_warning.h"

#include <string>

#include <fmt/format.h>

#include "runtime/read_only_stores.h"

namespace sparsekiln::tools {

void warn_if_not_kept(const Built& built, Answer& answer) {
  if (!built.pack_warning.empty()) answer.warnings.push_back(built.pack_warning);
  if (built.cache_warning.empty()) return;
  answer.warnings.push_back(fmt::format("what was compiled is not kept: {}", built.cache_warning));
}

void warn_if_not_kept(const Options& options, const Problem& problem, const Binary&, From from,
                      Answer& answer) {
  if (from == From::compiled) return warn_if_not_kept(build(problem.layout, options), answer);
  const std::string warning = environment_packs_warning();
  if (!warning.empty()) answer.warnings.push_back(warning);
}

}  // namespace sparsekiln::tools
