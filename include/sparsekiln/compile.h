#pragma once

#include <memory>
#include <string_view>

#include <sparsekiln/built.h>
#include <sparsekiln/kernel.h>
#include <sparsekiln/layout.h>
#include <sparsekiln/operands.h>
#include <sparsekiln/options.h>
#include <sparsekiln/problem.h>
#include <sparsekiln/target.h>

namespace sparsekiln {

/// The problem that `options` pose on `layout`. Throws `invalid_argument` as `validate` does.
[[nodiscard]] Problem make_problem(const Layout& layout, const Options& options);

/// "auto", "cuda", "cuda:1" through the devices of this machine, everything else through Target::parse;
/// "emulated" and "emulated:sm_80" without looking for the emulator.
/// Throws `driver` where a device is asked for and there is none, saying what was looked for.
[[nodiscard]] Target resolve_target(std::string_view text);

/// Finds the Binary in a pack or in the store, or makes it and puts it into the store. Needs no device unless
/// `options.target` is one ("auto" takes the cpu where there is none). Thread-safe; equal requests at the
/// same time compile once. It may be called with any stack from 64 KiB on: where less than 4 MiB are left,
/// NVRTC and LLVM run on a thread of the library's own, with 8 MiB.
[[nodiscard]] Built build(const Layout& layout, const Options& options);

/// Puts a Binary on a device: the cpu, or the current context's CUDA device ("cuda:1" names another, whose
/// primary context is then used). Its target decides which of the two; `device` only tells CUDA devices
/// apart. Throws `driver` where the machine has no such device, or the device cannot run the Binary, and
/// `invalid_argument` for one that lacks its layout (Binary::lacks_layout).
[[nodiscard]] Kernel load(std::shared_ptr<const Binary> binary, std::string_view device = "auto");

/// `build`, then `load`, remembered in this process: asking again while a handle lives is a table look-up.
/// Code that the device takes neither as cubin nor as PTX is passed over where a pack has it; from the store
/// it is compiled again, once, and replaced there. Not so with Require::prebuilt.
[[nodiscard]] Kernel compile(const Layout& layout, const Options& options);

}  // namespace sparsekiln
