#include "compiler/backend.h"

#include <fmt/format.h>

#include "compiler/cpu/attach.h"
#include "compiler/cpu/emit.h"
#include "compiler/cpu/object.h"
#include "compiler/cpu/sddmm.h"
#include "compiler/cpu_levels.h"
#include "compiler/host_threads.h"

namespace sparsekiln::cpu {
namespace {

constexpr std::string_view kHost = "cpu";

std::string target_names() { return fmt::format("{}, {}", kHost, level_names()); }

std::optional<Target> find_target(std::string_view name) {
  if (name == kHost) return Target::host();
  if (find_level(name) == nullptr) return std::nullopt;
  return Target{Target::Kind::cpu, std::string(name), host_threads()};
}

void compile(const Source& source, const Toolchain&, Binary& binary) {
  binary.code = compile_object(source.text, binary.target);
  binary.compiler = compiler_version();
  binary.options = binary.target.arch;
}

/// The tiles of a convolution are jobs.
std::string tiles_of(const Binary& binary, const Entry& entry) {
  if (!binary.operands.convolution.present() || entry.tile_n == 0)
    return fmt::format("tile_n {}", entry.tile_n);
  const std::int32_t images = entry.tile_n / entry.rows_of_one;
  if (images == 0) return fmt::format("{} jobs an image", entry.rows_of_one / entry.tile_n);
  return fmt::format("{} image{} a job", images, images == 1 ? "" : "s");
}

}  // namespace

extern const Backend kBackend;
constexpr Backend kBackend{
    .kind = Target::Kind::cpu,
    .target_names = target_names,
    .find_target = find_target,
    .source_suffix = ".ll",
    .code_suffix = ".o",
    .spmm = {validate, emit, recipe_of},
    .sddmm = {validate, emit, recipe_of},
    .compile = compile,
    .compiler = [](const Target&, const Toolchain&) { return compiler_version(); },
    .resources =
        [](const Binary& binary, const Entry&) {
          return Resources{.code_bytes = static_cast<std::int64_t>(binary.code.size())};
        },
    .attach_tables = [](const Problem& problem, const Plan&,
                        Binary& binary) { attach_tables(problem, binary); },
    .attached_cuts_anywhere = true,
    .describe =
        [](const Binary& binary, const Entry& entry) {
          return fmt::format("{} × {} threads, {}, {} bytes of code", entry.workers, entry.threads,
                             tiles_of(binary, entry), entry.resources.code_bytes);
        }};

}  // namespace sparsekiln::cpu
