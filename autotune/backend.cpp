#include "autotune/backend.h"

#include <array>

#include "compiler/backend_rows.h"

namespace sparsekiln {

SPARSEKILN_BACKENDS(SPARSEKILN_DECLARE_ROW, TuningBackend, kTuning)

const TuningBackend& tuning_of(const Target& target) {
  static constexpr std::array kAll{SPARSEKILN_BACKENDS(SPARSEKILN_ROW_ADDRESS, kTuning)};
  return row_of(target, kAll);
}

}  // namespace sparsekiln
