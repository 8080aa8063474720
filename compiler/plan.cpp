#include "compiler/plan.h"

#include <algorithm>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln {

bool attached(const Plan& plan) {
  const auto is = [](const RangedConfig& range) { return range.config.table == TableForm::attached; };
  const bool any = std::any_of(plan.begin(), plan.end(), is);
  if (any && !std::all_of(plan.begin(), plan.end(), is))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("plan '{}': all of its configs have attached tables, or none", to_string(plan)));
  return any;
}

std::size_t first_with_config(const Plan& plan, std::size_t index) {
  const Config& config = plan.at(index).config;
  const auto is_same = [&](const RangedConfig& range) { return range.config == config; };
  return static_cast<std::size_t>(std::find_if(plan.begin(), plan.end(), is_same) - plan.begin());
}

}  // namespace sparsekiln
