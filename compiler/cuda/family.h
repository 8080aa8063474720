#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/tables.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// What a family says of one kernel.
struct Instance {
  std::int32_t threads = 0;               ///< a CTA
  std::int32_t dynamic_shared_bytes = 0;  ///< a CTA
  ChunkShape chunk;
  /// Declarations of the template's Config, each on a line of its own, besides those that all families share:
  /// Table, block_out, block_in, tile_n, rows, merge, threads, splits and unrolled_workers.
  std::string declarations;
};

/// What one family of kernels adds to the emitter: a function of the same name as its header in templates/.
struct Family {
  Variant variant;
  std::string_view function;  ///< "spmm_simt"
  /// Throws `invalid_argument`, with what would work, where the family does not compute the problem.
  void (*validate)(const Spmm&, const Target&);
  /// Throws `invalid_argument` where the config's numbers do not go together.
  Instance (*instantiate)(const Spmm&, const Target&, const Config&);
};

extern const Family kSimt;    ///< CUDA cores
extern const Family kMma;     ///< tensor cores
extern const Family kStream;  ///< small batches

}  // namespace sparsekiln::cuda
