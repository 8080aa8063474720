#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <sparsekiln/binary.h>
#include <sparsekiln/built.h>
#include <sparsekiln/digest.h>
#include <sparsekiln/layout.h>
#include <sparsekiln/operands.h>
#include <sparsekiln/tensor_view.h>

namespace sparsekiln {

/// What serves the launches of a kernel: code with its layout baked in, or an attached layout.
enum class Tier : std::uint8_t { baked, attached };
[[nodiscard]] std::string_view name(Tier tier);

/// A Binary on a device: a counted, thread-safe handle. The code is loaded when this exists, and unloaded
/// with the last handle, on whatever thread that is. A launch does no look-up, synchronisation, string work
/// or locking, and allocates nothing except a workspace that it was not given and has not made before.
class Kernel {
 public:
  Kernel() = default;
  explicit operator bool() const noexcept { return impl_ != nullptr; }

  /// Checks the operands and launches. On the cpu it returns when y is written; on a GPU when the launch is
  /// queued. n is the batch of x, or of dy. With n = 0 the gradients of grad_weight are zeros, and the other
  /// operations do nothing. Throws `invalid_argument` naming the operand, or `driver`.
  ///
  /// CUDA contexts: on a thread where none is current, the kernel's is made current and stays so if it is a
  /// primary one, as with the CUDA runtime. Where another context of the same device is current, or the
  /// kernel's is one that the caller made, it is entered for the call and left again. A current context of
  /// another device is refused (`driver`). The stream must be of the kernel's context; null means the default
  /// stream of that one. All other calls of a handle leave the thread's current context as it was.
  void operator()(const Operands& operands) const;

  /// Scratch bytes that serve every launch with a batch of at most n, for partial sums of split rows and
  /// (cpu) packed activations, of kMostPairs pairs where grad_weight packs them. Never less for a larger n,
  /// so that the bytes for all rows of a batch of matrices, where the kernel takes that many, are enough
  /// whether the matrices run as one product or one by one. Throws `invalid_argument` for a batch that the
  /// kernel does not take.
  [[nodiscard]] std::int64_t workspace_bytes(std::int64_t n) const;
  /// How many bytes at its front must be zero before the first launch with a workspace: arrival counters, in
  /// as many bytes for every n. Every launch leaves them at zero; the bytes after them may hold anything. 0
  /// where no rows are split.
  [[nodiscard]] std::int64_t workspace_counter_bytes() const;

  /// Elements (of the weight's type) of the packed form of the weight, as many as it has; 0 where the kernel
  /// reads it unpacked.
  [[nodiscard]] std::int64_t packed_elements() const;
  /// Lays the weight out as the config asks (Config::packed, cpu target only): for this kernel, and for those
  /// with the same block, type, level, tile_out and tile_n. `w` is the unpacked weight; `packed` has
  /// packed_elements() elements, aligned to 16 bytes, that do not overlap it. Throws `invalid_argument`
  /// naming the operand, also where there is nothing to pack.
  void pack(const TensorView& w, void* packed) const;

  /// From now on this handle computes another layout with as many rows and columns of blocks; its weight has
  /// the blocks of that layout. Nothing is compiled and no code is loaded: the layout is scheduled and its
  /// tables are uploaded, or, on the cpu, read in place. Workspaces are those of a new kernel: ask
  /// workspace_bytes and workspace_counter_bytes again, and zero the counters of what the old layout used.
  ///
  /// Other copies of this handle keep the old layout. Its tables live until the last of them goes, which
  /// waits for what runs on the device. A graph captured from a handle goes on with the layout that the
  /// handle had, and reads its tables: keep a copy of that handle for as long as the graph.
  ///
  /// Must not be called while another thread uses this handle; copies of it may be in use. Where layouts
  /// change while threads launch, give each launch a copy of the handle: its operands and its workspace are
  /// then checked against the layout that it runs with.
  ///
  /// Throws `invalid_argument` for a kernel that is not attached (Specialization::attached) or is tiered, and
  /// for another grid; `driver` where memory is short. The handle is then as it was.
  void relayout(const Layout& layout);

  /// What serves launches from now on. `attached` becomes `baked`, once, on a kernel that was compiled with
  /// Specialization::tiered.
  [[nodiscard]] Tier tier() const noexcept;
  /// A tiered kernel: returns when the baked kernel serves. Where compiling that one failed, every call
  /// throws the error again, and the attached one stays in service. Other kernels: returns at once. The
  /// destructor of the last handle of a tiered kernel waits until the compilation has ended.
  void wait() const;

  /// The Binary of the tier that serves. The reference is valid while this handle exists and is given no
  /// other layout.
  [[nodiscard]] const Binary& binary() const;
  /// The identity in the store; zero for a Binary that was given to `load`.
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

}  // namespace sparsekiln
