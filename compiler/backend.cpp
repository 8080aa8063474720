#include "compiler/backend.h"

#include <array>
#include <variant>

#include "compiler/backend_rows.h"
#include "compiler/plan.h"

namespace sparsekiln {

SPARSEKILN_BACKENDS(SPARSEKILN_DECLARE_ROW, Backend, kBackend)

namespace {

constexpr std::array kBackends{SPARSEKILN_BACKENDS(SPARSEKILN_ROW_ADDRESS, kBackend)};

const auto& emitter_of(const Backend& backend, const Spmm&) { return backend.spmm; }
const auto& emitter_of(const Backend& backend, const Sddmm&) { return backend.sddmm; }

/// None for attached tables, which come with the launch.
template <class Kind>
auto schedules_of(const Kind& computed, const Target& target, const Plan& plan) {
  decltype(make_schedules(computed, target, plan)) schedules;
  if (!attached(plan)) schedules = make_schedules(computed, target, plan);
  return schedules;
}

}  // namespace

void Backend::validate(const Computed& computed, const Target& target, const Config& config) const {
  std::visit([&](const auto& of_kind) { emitter_of(*this, of_kind).validate(of_kind, target, config); },
             computed);
}

Source Backend::emit(const Computed& computed, const Target& target, const Plan& plan) const {
  return std::visit(
      [&](const auto& of_kind) {
        return emitter_of(*this, of_kind).emit(of_kind, target, plan, schedules_of(of_kind, target, plan));
      },
      computed);
}

Recipe Backend::recipe_of(const Computed& computed, const Target& target, const Plan& plan) const {
  return std::visit(
      [&](const auto& of_kind) {
        return emitter_of(*this, of_kind)
            .recipe_of(of_kind, target, plan, schedules_of(of_kind, target, plan));
      },
      computed);
}

std::span<const Backend* const> backends() { return kBackends; }

const Backend& backend_of(const Target& target) { return row_of(target, kBackends); }

Computed computed_by(const Problem& problem, const Target& target) {
  Computed computed = computed_by(problem);
  if (const Backend& backend = backend_of(target); backend.lower != nullptr) backend.lower(computed);
  return computed;
}

}  // namespace sparsekiln
