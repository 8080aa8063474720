#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <sparsekiln/binary.h>
#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/cuda/declarations.h"
#include "compiler/cuda/loop_tuning.h"
#include "compiler/cuda/tables.h"
#include "compiler/family_tuning.h"
#include "compiler/sddmm.h"
#include "compiler/spmm.h"

namespace sparsekiln::cuda {

/// What a family says of one kernel.
struct Instance {
  std::int32_t threads = 0;               ///< a CTA
  std::int32_t ctas = 1;                  ///< of a multiprocessor, whose registers must suffice for as many
  std::int32_t dynamic_shared_bytes = 0;  ///< a CTA
  LaunchAttributes attributes;
  /// The template's function takes them after all else, each as `const TensorMap&` of tensor_map.cuh.
  std::vector<TensorMap> tensor_maps;
  ChunkShape chunk;  ///< of products
  /// Members of the template's Config besides those that all families of its kind of problem share.
  Declarations declarations;
};

/// Whether launches of what is computed overlap the launches before them. griddepcontrol came with sm_90. The
/// kernels of a launch that transposes images, or normalises sums, follow one another.
[[nodiscard]] inline bool overlaps_launches(const Computation& computation, const Target& target) {
  return computation.overlap_launches && !computation.channels_first() && !computation.epilogue.layer_norm &&
         target.compute_capability() >= 90;
}

/// What multiplies: CUDA cores add in IEEE 754's float32, tensor cores several products at once, truncated.
enum class Arithmetic : std::uint8_t {
  cuda_cores,    ///< float32 with math ieee
  tensor_cores,  ///< every other type
  either,        ///< whichever takes the problem's types
};

/// What the tuner asks of a family of CUDA kernels besides.
template <class Computed, class Costs>
struct CudaTuning : FamilyTuning<Computed> {
  /// For configs that the compiler accepts.
  Costs (*loop_costs)(const Computed&, const Target&, const Config&);
  /// Whether a config's code keeps to its costs: it spills no registers, and stores whole sectors. One that
  /// does not is a default only where there is no other. Null: all do.
  bool (*keeps_costs)(const Computed&, const Target&, const Config&, const Costs&) = nullptr;
  /// No GPU has run its kernels: the model knows what others of the same structure took.
  bool by_structure = false;
};

/// A family of kernels for one kind of problem: a header of templates/ and all that the rest of the library
/// asks of it. A file of this folder defines it, which meson.build names, and the table in families.cpp has
/// it: nothing else does.
template <class Computed, class Costs>
struct Family {
  Variant variant;
  std::string_view function;  ///< "spmm_simt", the template; its header has the same name
  Arithmetic arithmetic;
  /// Throws `invalid_argument`, with what would work, where the family does not compute the problem.
  void (*validate)(const Computed&, const Target&);
  /// Throws `invalid_argument` where the config's numbers do not go together.
  Instance (*instantiate)(const Computed&, const Target&, const Config&);
  const CudaTuning<Computed, Costs>* tuning;
  /// The only architecture whose instructions its code is made of ("sm_90a"); empty: every one it computes
  /// for.
  std::string_view specific_arch = {};
};
using SpmmTuning = CudaTuning<Spmm, LoopCosts>;
using SpmmFamily = Family<Spmm, LoopCosts>;
using SddmmTuning = CudaTuning<Sddmm, SddmmCosts>;
using SddmmFamily = Family<Sddmm, SddmmCosts>;

}  // namespace sparsekiln::cuda
