#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sparsekiln/binary.h>
#include <sparsekiln/layout.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>
#include <sparsekiln/tensor_view.h>

namespace sparsekiln {

/// What may be done to get a Binary. With `prebuilt` nothing is ever compiled, and what serves is chosen
/// among what the packs hold: the store is not asked.
enum class Require : std::uint8_t { anything, prebuilt };
[[nodiscard]] std::string_view name(Require require);
[[nodiscard]] Require parse_require(std::string_view text);

/// Where the config comes from. `recorded`: what tuning has found for this problem, target and device, here
/// or elsewhere, else the cost model's choice. `now`: as before, but that a problem without a record of this
/// device is tuned first, which takes a while (Options::tuning_seconds) and needs the device. Of no account
/// for what is pinned, attached or tiered; not together with Require::prebuilt. Candidates are compiled in
/// processes forked off this one.
enum class Tuning : std::uint8_t { recorded, now };
[[nodiscard]] std::string_view name(Tuning tuning);

/// What a kernel's code is specialized to.
///
/// `baked`: to one layout, which is part of the code.
///
/// `attached`: to no layout; it comes as tables, which are uploaded to a GPU when the kernel is loaded. All
/// layouts of a block shape, batch and types, whatever their size, share one compile, and Kernel::relayout
/// takes another. On a GPU this costs a dependent load before the data; on the cpu the cost is hard to
/// measure. The table form of a pinned `config` is replaced; the results have the bits of the kernel that is
/// baked with the same config. `invalid_argument` on CUDA targets for grad_weight and for cut features, which
/// the cpu takes: its code for layouts with a cut edge serves every cut of that edge.
///
/// `tiered`: `compile` answers with an attached kernel at once, makes the baked one on a thread of its own,
/// and replaces the first by it for the launches that follow, see Kernel::tier. It has the same config except
/// for the form of its tables, so its results have the same bits, and workspace_bytes and workspaces stay
/// valid. Where the baked one is in the store, or the target is the cpu, it is the answer at once. `build`
/// makes the baked one. Not together with Require::prebuilt.
enum class Specialization : std::uint8_t { baked, attached, tiered };
[[nodiscard]] std::string_view name(Specialization specialization);
/// Throws `invalid_argument` for anything but these three names.
[[nodiscard]] Specialization parse_specialization(std::string_view text);
/// From two flags, as the command line and the C interface have them. Throws `invalid_argument` where both
/// are set.
[[nodiscard]] Specialization specialization_of(bool attached, bool tiered);

/// How far a run of the tuner has come.
struct TuningProgress {
  std::size_t contest = 0;  ///< of so many, counted from 0
  std::size_t contests = 1;
  std::size_t settled = 0;     ///< candidates of this contest that are no longer untried …
  std::size_t candidates = 0;  ///< … of all
  double best_us = 0;          ///< so far; 0: none yet
  double seconds = 0;          ///< since the run began
};

/// Looks on while Tuning::now tunes, on the thread that called `compile`. Of equal requests at the same time
/// one tunes, and its watch alone is told.
class TuningWatch {
 public:
  virtual ~TuningWatch() = default;
  /// Called now and then; whether to go on. If not, what was measured is kept, and the best of it chosen.
  virtual bool goes_on(const TuningProgress& progress) = 0;
};

/// Everything a caller may wish of `compile`. Designated initialisers read well:
/// `sk::compile(layout, {.block = {32, 32}, .batch = 64, .dtype = sk::DType::bf16})`.
struct Options {
  BlockShape block = {32, 32};
  Batch batch = 1;
  DType dtype = DType::f32;
  std::optional<DType> out_dtype;  ///< as dtype, where not given
  Operation operation = Operation::forward;
  Math math = Math::ieee;
  ActivationOrder order = ActivationOrder::batch_major;
  bool strict_absent = false;
  Epilogue epilogue;
  Activation derivative = Activation::none;  ///< see Problem, here and below
  bool gates = false;
  bool bias_gradient = false;
  bool gate_gradient = false;
  std::int64_t in_features = 0;  ///< where the layout's last column is cut; 0: all of its blocks
  std::int64_t out_features = 0;
  std::int32_t alignment = 16;

  /// "auto": the current CUDA device where there is one, else the cpu. "cuda", "cuda:1", "emulated" (an sm_90
  /// made of software), "emulated:sm_80", or what Target::parse takes.
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
  /// Packs (`sparsekiln precompile` makes them), and folders of stores that others keep: read-only, asked in
  /// this order before the store, and before those that SPARSEKILN_PACKS lists (joined by colons). One that
  /// is missing or damaged is an Error (`cache`) where it is given here, or where `require` is `prebuilt`;
  /// where the environment names it, it is passed over and Built::pack_warning says so.
  std::vector<std::filesystem::path> packs;
  /// With Require::prebuilt the config is the cost model's where a pack holds it, else the nearest to it that
  /// a pack holds for this problem and target (one that `config` pins is never replaced). Where there is
  /// none: an Error (`cache`) that says what is missing and the command that makes it. Not together with
  /// Specialization::tiered.
  Require require = Require::anything;

  friend bool operator==(const Options&, const Options&) = default;
};

/// The problem that `options` pose on `layout`; validated.
[[nodiscard]] Problem make_problem(const Layout& layout, const Options& options);

/// "auto", "cuda", "cuda:1" through the devices of this machine, everything else through Target::parse;
/// "emulated" and "emulated:sm_80" without looking for the emulator.
/// Throws `driver` where a device is asked for and there is none, saying what was looked for.
[[nodiscard]] Target resolve_target(std::string_view text);

/// Where a Binary came from: made now; the store (its folder, or its memory where that cannot be written); a
/// kernel of this process, or an equal request that was under way; a pack (Options::packs).
enum class From : std::uint8_t { compiled, store, memory, pack };
[[nodiscard]] std::string_view name(From from);

/// What serves the launches of a kernel: code with its layout baked in, or an attached layout.
enum class Tier : std::uint8_t { baked, attached };
[[nodiscard]] std::string_view name(Tier tier);

/// A Binary as `build` found or made it. With attached tables: what all layouts share, and this layout.
struct Built {
  std::shared_ptr<const Binary> binary;
  From from = From::compiled;
  Digest key;             ///< of the identity; in hexadecimal, the name of its file in the store
  double compile_ms = 0;  ///< wall time inside build
  /// Why the Binary is not kept on disk, so that other processes will make it again: what was asked, what is
  /// wrong and what would work. Empty where it is kept.
  std::string cache_warning;
  /// What is wrong with packs that the environment names, and were therefore passed over; empty if nothing.
  std::string pack_warning;
};

/// Finds the Binary in a pack or in the store, or makes it and puts it into the store. Needs no device unless
/// `options.target` is one ("auto" takes the cpu where there is none). Thread-safe; equal requests at the
/// same time compile once.
[[nodiscard]] Built build(const Layout& layout, const Options& options);

/// One step of a recurrent network: what grad_weight sums over.
struct ActivationPair {
  TensorView x;   ///< [n, in_features]
  TensorView dy;  ///< [n, out_features]
  TensorView z;   ///< [n, out_features], with Problem::derivative
};

/// The operands of a linear layer; each operation and epilogue has its own, and looks at no other.
///
///   forward      y[n, out] = x[n, in] · W[out, in]ᵀ, and what Problem::epilogue makes of it
///   grad_input   dx[n, in] = dy[n, out] · W[out, in]
///   grad_weight  dw = dy[n, out]ᵀ · x[n, in] on the blocks of the layout
///
/// Activations are [n, features], rows contiguous; feature-major [features, n], likewise. With three
/// dimensions they are batches of such matrices, of any stride: as one product where they lie like one matrix
/// of a batch that the kernel takes, else one launch each, in order. The stride of an axis of extent 1 may be
/// any number.
/// What is computed must not overlap what is read. Every element of it is written; it is read where beta != 0
/// alone.
struct Operands {
  TensorView x;  ///< [n, in_features]
  /// [blocks, block_out, block_in], dense, row-major over the layout. Where Kernel::packed_elements() is not
  /// 0: what Kernel::pack made, as a dense view of any rank and shape with that many elements. Where
  /// the layout has no blocks it may be left out, as may v and dw.
  TensorView w;
  TensorView y;         ///< [n, out_features]
  TensorView dy;        ///< [n, out_features], of x's type
  TensorView dx;        ///< [n, in_features], of y's type
  TensorView dw;        ///< like w, of the output type
  TensorView v;         ///< Epilogue::glu: like w
  TensorView bias;      ///< [out_features], of the output type
  TensorView v_bias;    ///< Epilogue::glu and bias: likewise
  TensorView residual;  ///< like y
  TensorView z;         ///< Problem::derivative: like dy
  TensorView gates;     ///< [blocks], of sum_type(dtype)
  TensorView dbias;     ///< Problem::bias_gradient: [out_features], of sum_type(dtype)
  TensorView dgates;    ///< Problem::gate_gradient: [blocks], of sum_type(dtype)
  /// Of grad_weight, instead of x, dy and z: up to kMostPairs of them, each of the batch n, summed in this
  /// order.
  std::span<const ActivationPair> pairs = {};
  float alpha = 1;  ///< Epilogue::scale
  float beta = 0;   ///< likewise
  /// At least workspace_bytes(n) bytes, aligned to 64, where n is the batch of what is launched: of all
  /// matrices where they run as one product, else of one. Of one kernel: zeroed before the first launch, then
  /// good for any n that it is large enough for. Two launches that may overlap must not share it, and two
  /// kernels must not, unless it is zeroed in between. Null: the kernel keeps one per stream, on the cpu one
  /// per calling thread; a launch that is captured into a graph must be given one, for that graph alone.
  void* workspace = nullptr;
  /// Bytes from `workspace` on that the launch may write. To be stated: a workspace of fewer bytes than
  /// workspace_bytes(n) is refused.
  std::int64_t workspace_size = 0;
  void* stream = nullptr;  ///< a CUstream (cudaStream_t); ignored on the cpu
};

/// A Binary on a device: a counted, thread-safe handle. The code is resident when this exists, and goes with
/// the last handle, on whatever thread that is. A launch does no look-up, synchronisation, string work or
/// locking, and
/// no allocation but for a workspace that it was not given and has not made before.
class Kernel {
 public:
  Kernel() = default;
  explicit operator bool() const noexcept { return impl_ != nullptr; }

  /// Checks the operands and launches. On the cpu it returns when y is written; on a GPU when the launch is
  /// queued. n is the batch of x, or of dy. With n = 0
  /// the gradients of grad_weight are zeros, and the other operations do nothing. Throws `invalid_argument`
  /// naming the operand, or `driver`.
  ///
  /// CUDA contexts: on a thread where none is current, the kernel's is made current and stays so if it is a
  /// primary one, as with the CUDA runtime. Where another context of the same device is current, or the
  /// kernel's is one that the caller made, it is entered for the call and left again. A current context of
  /// another device is refused (`driver`). The stream must be of the kernel's context; null means the default
  /// stream of that one. All other calls of a handle leave the thread's current context as it was.
  void operator()(const Operands& operands) const;

  /// Scratch bytes that serve every launch with a batch of at most n, for partial sums of split rows and
  /// (cpu) packed activations, of kMostPairs pairs where grad_weight packs them. Never less for a larger n,
  /// so that of all rows of a batch of matrices, where the kernel takes that many, is good whether they run
  /// as one product or one by one. Throws `invalid_argument` for a batch that the kernel does not take.
  [[nodiscard]] std::int64_t workspace_bytes(std::int64_t n) const;

  /// Elements (of the weight's type) of the packed form of the weight, as many as it has; 0 where the kernel
  /// reads it as it lies.
  [[nodiscard]] std::int64_t packed_elements() const;
  /// Lays the weight out as the config asks (Config::packed, cpu target only): for this kernel, and for those
  /// with the same block, type, level, tile_out and tile_n. `w` is the weight as it lies; `packed` has
  /// packed_elements() elements, aligned to 16 bytes, that do not overlap it. Throws `invalid_argument`
  /// naming the operand, also where there is nothing to pack.
  void pack(const TensorView& w, void* packed) const;

  /// From here on this handle computes another layout of as many rows and columns of blocks; its weight has
  /// the blocks of that layout. Nothing is compiled and no code is loaded: the layout is scheduled and its
  /// tables are uploaded, or, on the cpu, read in place. Workspaces are those of a new kernel: ask
  /// workspace_bytes again, and zero what the old layout used.
  ///
  /// Other copies of this handle keep the old layout. Its tables live until the last of them goes, which
  /// waits for what runs on the device. A graph captured from a handle goes on with the layout that the
  /// handle had, and reads its tables: keep a copy of that handle for as long as the graph.
  ///
  /// Not to be called while another thread uses this very handle; its copies may be in use. Where layouts
  /// change while threads launch, give each launch a copy of the handle: its operands and its workspace are
  /// then checked against the layout that it runs with.
  ///
  /// Throws `invalid_argument` for a kernel that is not attached (Specialization::attached) or is tiered, and
  /// for another grid; `driver` where memory is short. The handle is then as it was.
  void relayout(const Layout& layout);

  /// What serves launches from now on. `attached` becomes `baked`, once, on a kernel that was compiled with
  /// Specialization::tiered.
  [[nodiscard]] Tier tier() const noexcept;
  /// Of a tiered kernel: returns when the baked kernel serves; throws, at every call, what its making threw:
  /// the attached one is then in service for good. Of others: returns at once. The last handle of a tiered
  /// kernel waits for the making to end when it goes.
  void wait() const;

  /// Of the tier that serves. The reference is good while this handle lives and is not laid out anew.
  [[nodiscard]] const Binary& binary() const;
  /// Of the identity in the store; zero for a Binary that was loaded by hand.
  [[nodiscard]] const Digest& key() const;
  /// Where the `compile` that made this handle found the Binary, and its wall time in it, loading included.
  /// For a handle that `load` made: `compiled`, and the wall time of loading.
  [[nodiscard]] From from() const noexcept { return from_; }
  [[nodiscard]] double compile_ms() const noexcept { return compile_ms_; }

  struct Impl;
  Kernel(std::shared_ptr<const Impl> impl, From from, double compile_ms);

 private:
  std::shared_ptr<const Impl> impl_;
  From from_ = From::compiled;
  double compile_ms_ = 0;
};

/// Puts a Binary on a device: the cpu, or the current context's CUDA device ("cuda:1" names another, whose
/// primary context is then used). Its target decides which of the two; `device` only tells CUDA devices
/// apart. Throws `driver` where the machine has no such device, or the device cannot run the Binary, and
/// `invalid_argument` for one that lacks its layout (Binary::lacks_layout).
[[nodiscard]] Kernel load(std::shared_ptr<const Binary> binary, std::string_view device = "auto");

/// `build`, then `load`, remembered in this process: asking again while a handle lives is a table look-up.
/// Code that the device takes neither as cubin nor as PTX is passed over where a pack has it; from the store
/// it is compiled anew, once, and replaced there. Not so with Require::prebuilt.
[[nodiscard]] Kernel compile(const Layout& layout, const Options& options);

}  // namespace sparsekiln
