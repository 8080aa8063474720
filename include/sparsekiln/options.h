#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sparsekiln/config.h>
#include <sparsekiln/problem.h>

namespace sparsekiln {

/// What may be done to get a Binary. With `built` and `prebuilt` nothing is ever compiled: with `built` the
/// Binary of the config that is asked for comes from the packs or the store, with `prebuilt` one is chosen
/// among those that the packs hold, and the store is not read.
enum class Require : std::uint8_t { anything, built, prebuilt };
[[nodiscard]] std::string_view name(Require require);
[[nodiscard]] Require parse_require(std::string_view text);

/// Where the config comes from. `recorded`: what tuning has found for this problem, target and device, here
/// or elsewhere, else the default plan. `now`: the same, except that a problem without a record of this
/// device is tuned first, which takes a while (Options::tuning_seconds) and needs the device. It changes
/// nothing for what is pinned, attached or tiered; only together with Require::anything. Candidates are
/// compiled in processes forked from this one.
enum class Tuning : std::uint8_t { recorded, now };
[[nodiscard]] std::string_view name(Tuning tuning);

/// What a kernel's code is specialized to.
///
/// `baked`: to one layout, which is part of the Binary: its tables are in the code, or beside it if they are
/// large.
///
/// `attached`: to no layout; it comes as tables, which are uploaded to a GPU when the kernel is loaded. All
/// layouts of a block shape, batch and types, and, for a convolution, of one geometry, whatever their size,
/// share one compile, and Kernel::relayout takes another. On a GPU this costs a dependent load before the
/// data; on the cpu the cost is hard to measure. The table form of a pinned `config` is replaced; the results
/// have the bits of the kernel that is baked with the same config. `invalid_argument` for a mask of taps for
/// each block, which belongs to one layout, and on CUDA targets for channels-first images, which the cpu
/// takes. The cpu's code for layouts with partial edge blocks serves every number of features in them; on
/// CUDA targets these numbers are part of the code, which layouts with the same features share.
///
/// `tiered`: `compile` returns an attached kernel at once, makes the baked one on a thread of its own,
/// and replaces the first by it for the launches that follow, see Kernel::tier. It has the same config except
/// for the form of its tables, so its results have the same bits, and workspace_bytes and workspaces stay
/// valid. Where the baked one is in the store, or the target is the cpu, it is returned at once. `build`
/// makes the baked one. Not together with Require::prebuilt. `invalid_argument` for what `attached` does not
/// take.
enum class Specialization : std::uint8_t { baked, attached, tiered };
[[nodiscard]] std::string_view name(Specialization specialization);
/// Throws `invalid_argument` for anything but these three names.
[[nodiscard]] Specialization parse_specialization(std::string_view text);
/// From two flags, as the command line and the C interface have them. Throws `invalid_argument` where both
/// are set.
[[nodiscard]] Specialization specialization_of(bool attached, bool tiered);

/// How far a run of the tuner has come.
struct TuningProgress {
  std::size_t contest = 0;     ///< the one that runs, counted from 0
  std::size_t contests = 1;    ///< how many there are
  std::size_t settled = 0;     ///< candidates of this contest that are no longer untried …
  std::size_t candidates = 0;  ///< … of all
  double best_us = 0;          ///< so far; 0: none yet
  double seconds = 0;          ///< since the run began
};

/// Receives progress callbacks while Tuning::now tunes, on the thread that called `compile`. Where equal
/// requests are made at the same time, one of them tunes, and only its watch receives them.
class TuningWatch {
 public:
  virtual ~TuningWatch() = default;
  /// Called from time to time; returns whether to go on. If not, what was measured is kept, and the best of
  /// it is chosen.
  virtual bool goes_on(const TuningProgress& progress) = 0;
};

/// Everything a caller may ask of `compile`. What decides the numbers of the result comes first, and means
/// what the members of Computation and Problem of the same names say. Designated initialisers read well:
/// `sk::compile(layout, {.block = {32, 32}, .batch = 64, .dtype = sk::DType::bf16})`.
struct Options {
  BlockShape block = {32, 32};
  Batch batch = 1;
  DType dtype = DType::f32;
  std::optional<DType> out_dtype;  ///< result_type(dtype), where not given
  Operation operation = Operation::forward;
  Math math = Math::ieee;
  ActivationOrder order = ActivationOrder::batch_major;
  bool strict_absent = false;
  Epilogue epilogue;
  Activation derivative = Activation::none;
  bool block_scales = false;
  bool bias_gradient = false;
  bool block_scale_gradient = false;
  std::int64_t in_features = 0;   ///< of x, cut the last column, or where transposed the last row; 0: whole
  std::int64_t out_features = 0;  ///< of y, cut the last row, or where transposed the last column; 0: whole
  std::int32_t alignment = 16;
  bool overlap_launches = false;
  Convolution convolution;

  /// "auto": the current CUDA device where there is one, else the cpu. "cuda", "cuda:1", "emulated" (an sm_90
  /// in software), "emulated:sm_80", or what Target::parse takes.
  std::string target = "auto";
  /// Pins the config of a fixed batch instead of choosing one; `invalid_argument` where it does not fit.
  std::optional<Config> config;
  Tuning tuning = Tuning::recorded;
  double tuning_seconds = 30;           ///< the budget of Tuning::now
  TuningWatch* tuning_watch = nullptr;  ///< not owned
  Specialization specialization = Specialization::baked;
  /// The store's folder; empty: SPARSEKILN_CACHE_DIR, else XDG_CACHE_HOME/sparsekiln, else
  /// ~/.cache/sparsekiln.
  std::filesystem::path cache_dir;
  /// Packs (`sparsekiln precompile` makes them), and folders of stores that others keep: read-only, searched
  /// in this order before the store, and before those that SPARSEKILN_PACKS lists (joined by colons). One
  /// that is missing or damaged is an Error (`cache`) where it is given here, or where `require` is
  /// `prebuilt`; where the environment names it, it is skipped and Built::pack_warning says so.
  std::vector<std::filesystem::path> packs;
  /// With Require::prebuilt the config is the default plan's where a pack holds it, else the nearest to it
  /// that a pack holds for this problem and target (one that `config` pins is never replaced). Where there is
  /// none: an Error (`cache`) that says what is missing and the command that makes it. With Require::built an
  /// Error (`cache`) where neither packs nor the store have it. Neither goes with Specialization::tiered.
  Require require = Require::anything;

  friend bool operator==(const Options&, const Options&) = default;
};

}  // namespace sparsekiln
