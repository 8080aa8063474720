#include "compiler/backend.h"

#include <utility>
#include <variant>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/cuda/architectures.h"
#include "compiler/cuda/attach.h"
#include "compiler/cuda/emit.h"
#include "compiler/cuda/families.h"
#include "compiler/cuda/nvrtc.h"
#include "compiler/cuda/nvrtc_choice.h"
#include "compiler/cuda/resources.h"
#include "compiler/cuda/sddmm.h"

namespace sparsekiln::cuda {
namespace {

/// Channels-first activations of a convolution: their channels-last equivalent, of rows in the workspace,
/// which other kernels of the launch transpose (templates/images.cuh). These rows are aligned to 16 bytes,
/// whatever the caller's are, and nothing of the launch may begin early.
void lower(Computed& computed) {
  const auto put_on_rows = [](auto& of_kind) { of_kind = on_rows(std::move(of_kind)); };
  std::visit(put_on_rows, computed);
}

void compile(const Source& source, const Toolchain& toolchain, Binary& binary) {
  const std::string arch = code_arch(binary.target, binary.plan);
  const auto nvrtc = find_nvrtc(toolchain, arch);
  NvrtcOutput output = nvrtc->compile(source.text, arch, toolchain.line_info);
  binary.code = std::move(output.cubin);
  binary.ptx = std::move(output.ptx);
  binary.log = std::move(output.log);
  binary.compiler = nvrtc->name();
  binary.options = Nvrtc::options(arch, toolchain.line_info);
}

std::string compiler(const Target& target, const Toolchain& toolchain) {
  return find_nvrtc(toolchain, target.arch)->name();
}

Resources resources(const Binary& binary, const Entry& entry) {
  Resources all;
  for (const std::string& pass : entry.passes)
    all = combined(all, read_resources(binary.code, pass, binary.log));
  return all;
}

/// The workspace of channels-first images begins after counters that baked code knows.
void check_any_layout(const Problem& problem, const Target& target, std::string_view asked) {
  if (problem.channels_first())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("channels-first images with {} on {}: its kernels transpose them for one layout; "
                            "channels-last ones, or no {}, would work",
                            asked, target.arch, asked));
}

std::string describe(const Binary&, const Entry& entry) {
  const Resources& taken = entry.resources;
  return fmt::format(
      "{} × {} threads, tile_n {}, {} bytes of code, {} registers, {} + {} bytes shared, {} bytes spilled, "
      "{} bytes constant",
      entry.workers, entry.threads, entry.tile_n, taken.code_bytes, taken.registers, taken.shared_bytes,
      entry.dynamic_shared_bytes, taken.spill_store_bytes, taken.constant_bytes);
}

}  // namespace

extern const Backend kBackend;
constexpr Backend kBackend{.kind = Target::Kind::cuda,
                           .target_names = target_names,
                           .find_target = find_target,
                           .source_suffix = ".cu",
                           .code_suffix = ".cubin",
                           .lower = lower,
                           .spmm = {validate, emit, recipe_of},
                           .sddmm = {validate, emit, recipe_of},
                           .compile = compile,
                           .compiler = compiler,
                           .resources = resources,
                           .attach_tables = attach_tables,
                           .check_any_layout = check_any_layout,
                           .overlaps_launches = overlaps_launches,
                           .tiered = true,
                           .describe = describe};

}  // namespace sparsekiln::cuda
