#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sparsekiln/binary.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

#include "compiler/block_runs.h"
#include "compiler/problem_kind.h"
#include "compiler/schedule.h"
#include "compiler/source.h"
#include "compiler/toolchain.h"

namespace sparsekiln {

/// What computes one kind of problem.
template <class Kind, class ScheduleOfKind>
struct Emitter {
  /// Throws `invalid_argument`, with what would work, unless a config can compute a problem.
  void (*validate)(const Kind&, const Target&, const Config&);
  /// The source for a plan that was validated. Pure; schedules[i] belongs to plan[i]. With attached tables
  /// there are no schedules, the text does not depend on the layout, and entries have neither workers nor
  /// workspace.
  Source (*emit)(const Kind&, const Target&, const Plan&, const std::vector<ScheduleOfKind>& schedules);
  /// The recipe of what `emit` writes, by itself: for a Binary that is there already.
  Recipe (*recipe_of)(const Kind&, const Target&, const Plan&, const std::vector<ScheduleOfKind>& schedules);
};

/// A kind of target, and all that the compiler asks of it. Each is the constant `kBackend` of its namespace
/// and folder (compiler/cuda/backend.cpp), which the list in meson.build names. What tuning and devices ask
/// of one are rows of their own: autotune/backend.h and runtime/backend.h.
struct Backend {
  Target::Kind kind;
  /// What its targets are called, for messages: "cpu, x86-64 …".
  std::string (*target_names)();
  /// The target of a name without workers, with the usual number of these; nothing where it is no name of
  /// this backend's.
  std::optional<Target> (*find_target)(std::string_view name);
  std::string_view source_suffix;  ///< of the file that its source is written to, ".cu"
  std::string_view code_suffix;    ///< and of Binary::code
  /// Changes a problem into the one that its kernels compute; null where they compute what is asked.
  void (*lower)(Computed&) = nullptr;
  Emitter<Spmm, Schedule> spmm;
  Emitter<Sddmm, BlockRuns> sddmm;
  /// Fills in what a Binary, complete but for this, has from its compiler: code, PTX, log, compiler, options.
  /// Throws `compile`.
  void (*compile)(const Source&, const Toolchain&, Binary&);
  /// The compiler that would do so: "LLVM 19.1.7". Throws where there is none.
  std::string (*compiler)(const Target&, const Toolchain&);
  Resources (*resources)(const Binary&, const Entry&);  ///< as read from the code
  /// Fills in each entry's workers, workspace, passes and tables for the layout of a problem, as
  /// sparsekiln::attach does.
  void (*attach_tables)(const Problem&, const Plan&, Binary&);
  /// Throws `invalid_argument` for problems that code for any layout does not compute; `asked` is what asks
  /// for such code. Null where it computes all.
  void (*check_any_layout)(const Problem&, const Target&, std::string_view asked) = nullptr;
  /// Whether the code for layouts with partial edge blocks serves every number of features in them; otherwise
  /// these numbers are part of it.
  bool attached_cuts_anywhere = false;
  /// Whether launches of what is computed overlap the launches before them. Null: none do.
  bool (*overlaps_launches)(const Computation&, const Target&) = nullptr;
  /// Whether attached code may be so much slower that a baked kernel takes its place later
  /// (Specialization::tiered). Others answer such a request with the baked one.
  bool tiered = false;
  /// What an entry's launch and code take, for people, after its range of n: "4 × 1 threads, tile_n 32 …".
  std::string (*describe)(const Binary&, const Entry&);

  // By the kind of a problem, with the schedules of a plan.
  void validate(const Computed& computed, const Target& target, const Config& config) const;
  [[nodiscard]] Source emit(const Computed& computed, const Target& target, const Plan& plan) const;
  [[nodiscard]] Recipe recipe_of(const Computed& computed, const Target& target, const Plan& plan) const;
};

/// All of this build, in the order in which "auto" takes their devices.
[[nodiscard]] std::span<const Backend* const> backends();
[[nodiscard]] const Backend& backend_of(const Target& target);

}  // namespace sparsekiln
