#include "compiler/cpu/attach.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "compiler/block_runs.h"
#include "compiler/cpu/plain_spmm.h"
#include "compiler/cpu/product_data.h"
#include "compiler/cpu/sddmm_geometry.h"
#include "compiler/element.h"
#include "compiler/problem_kind.h"
#include "compiler/schedule.h"

namespace sparsekiln::cpu {
namespace {

/// The one with the longest strips whose panel stays in a cache; if none does, the one with the shortest.
const Geometry& fitting_form(const Spmm& product, const std::vector<Geometry>& forms) {
  const auto fits = std::find_if(forms.begin(), forms.end(), [&](const Geometry& form) {
    return form.has_small_panel(words_of(product, form));
  });
  return fits == forms.end() ? forms.back() : *fits;
}

void attach(const Spmm& product, Binary& binary) {
  const Plan& plan = binary.plan;
  const Level& level = level_of(binary.target);
  const std::vector<Schedule> schedules = make_schedules(product, binary.target, plan);
  const std::int64_t counters_in_front = counter_bytes(product, plan, schedules);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    Entry& entry = binary.entries[i];
    if (element(product.dtype).cpu == CpuPasses::plain) {
      const LayoutData data = plain_spmm_data(product, schedules[i]);
      describe(data, entry);
      entry.tables = image_of(data);
      continue;
    }
    const Config& config = plan[i].config;
    const Geometry geometry(product, level, config);
    const std::int64_t n = scheduled_n(product.batch, plan, i);
    const std::vector<Geometry> forms = attached_forms(product, geometry, binary.target, config, n);
    const Geometry& form = forms.empty() ? geometry : fitting_form(product, forms);
    const LayoutData data = product_data(product, form, schedules[i], counters_in_front);
    describe(data, entry);
    entry.workspace.sums_of_one = product.bytes_of_sums(product.groups_of_sums());
    describe_jobs(form, entry);
    const std::string suffix = entry_suffix(plan, i);
    entry.passes = forms.empty() ? attached_passes(geometry, suffix, entry.workers)
                                 : std::vector{"product" + form_suffix(form, suffix)};
    if (product.normalisation) entry.passes.push_back(normalise_pass(suffix));
    entry.tables = image_of(data);
  }
}

void attach(const Sddmm& gradient, Binary& binary) {
  const std::vector<BlockRuns> schedules = make_schedules(gradient, binary.target, binary.plan);
  for (std::size_t i = 0; i < binary.plan.size(); ++i) {
    const RangedConfig& range = binary.plan[i];
    const SddmmGeometry geometry(gradient, level_of(binary.target), range.config);
    const LayoutData data = sddmm_data(gradient, geometry, schedules[i]);
    Entry& entry = binary.entries[i];
    describe(data, entry);
    entry.tables = image_of(data);
  }
}

}  // namespace

void attach_tables(const Problem& problem, Binary& binary) {
  std::visit([&](const auto& computed) { attach(computed, binary); }, computed_by(problem));
}

}  // namespace sparsekiln::cpu
