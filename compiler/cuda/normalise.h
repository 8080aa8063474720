#pragma once

#include <cstdint>
#include <string_view>

#include "compiler/cuda/declarations.h"
#include "compiler/cuda/family.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

// The kernel of a launch that finishes what a product with Spmm::normalisation has summed, of
// templates/normalise.cuh. An entry launches it as it does the product.

/// The template's function.
[[nodiscard]] std::string_view normalisation_function(const Spmm& problem);

/// The members of Config that it reads besides those of the product. `attached`: for any layout.
[[nodiscard]] Declarations normalisation_declarations(const Spmm& problem, const Instance& instance,
                                                      bool attached);

/// The dynamic shared memory of an instance whose launch also normalises.
[[nodiscard]] std::int32_t shared_bytes_with_normalisation(const Instance& instance);

/// How the threads of a CTA share batch rows.
struct RowTeams {
  std::int32_t warps = 1;  ///< that share a row
  std::int32_t count = 1;  ///< of a CTA
  bool holds = true;       ///< a row in registers, and so reads it once
  std::int32_t piece = 1;  ///< neighbouring features of a lane, which are read at once
};
[[nodiscard]] RowTeams row_teams(const Spmm& problem, std::int32_t threads);

/// Workspace::sums_of_one: registers that hold a row have no need of memory for what becomes of each group.
[[nodiscard]] std::int64_t bytes_of_sums(const Spmm& problem, std::int32_t threads);

}  // namespace sparsekiln::cuda
