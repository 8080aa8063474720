#include "autotune/backend.h"

#include <array>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "backend_list.h"

namespace sparsekiln {

#define SPARSEKILN_DECLARE(name)      \
  namespace name {                    \
  extern const TuningBackend kTuning; \
  }
SPARSEKILN_BACKENDS(SPARSEKILN_DECLARE)

const TuningBackend& tuning_of(const Target& target) {
#define SPARSEKILN_ADDRESS(name) &name::kTuning,
  static constexpr std::array kAll{SPARSEKILN_BACKENDS(SPARSEKILN_ADDRESS)};
  for (const TuningBackend* const tuning : kAll)
    if (tuning->kind == target.kind) return *tuning;
  throw Error(ErrorKind::internal, fmt::format("nothing tunes for target {}", target.to_string()));
}

}  // namespace sparsekiln
