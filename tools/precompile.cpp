#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "cache/pack.h"
#include "compiler/cuda/compatibility.h"
#include "runtime/backend.h"
#include "tools/command.h"
#include "tools/jobs.h"
#include "tools/options.h"
#include "tools/precompile_run.h"
#include "tools/shard.h"

namespace sparsekiln::tools {
namespace {

struct PrecompileArguments {
  KernelArguments what;
  std::vector<std::filesystem::path> files;
  std::vector<std::string> archs;
  bool from_store = false;
  bool keep_going = false;
  bool lean = false;
  std::int64_t workers = 0;  ///< 0: one a core
  std::string driver;        ///< "12.4"; empty: this machine's
  std::string shard = "0/1";
  std::filesystem::path output;
};

/// The driver that shall load the pack; nothing where that is not said.
std::optional<Toolchain> driver_of(const PrecompileArguments& arguments) {
  if (arguments.driver.empty()) return std::nullopt;
  const int version = cuda::parse_version(arguments.driver);
  if (version != 0 && !cuda::nvrtc_for(version).empty()) return Toolchain{version};
  throw Error(ErrorKind::invalid_argument,
              fmt::format("--driver '{}': the version of CUDA that nvidia-smi shows for a driver, 12.0 or "
                          "later: 12.4, 13.0",
                          arguments.driver));
}

void check(const PrecompileArguments& arguments) {
  if (arguments.files.empty() && !arguments.from_store)
    throw Error(ErrorKind::invalid_argument,
                "precompile: of what? Give layout files, a jobs file (.json), or --from-store");
  if (arguments.workers < 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--jobs {}: 1 or more kernels are compiled at once", arguments.workers));
  static_cast<void>(with_plain_archs(arguments.archs));
  static_cast<void>(driver_of(arguments));
  check_shard(parse_shard(arguments.shard), arguments.from_store);
}

void report(const Precompiled& made, const PrecompileArguments& arguments, Answer& answer) {
  answer.json["kernels"] = made.entries.size();
  answer.json["compiled"] = made.compiled;
  answer.json["found"] = made.found;
  answer.json["compilers"] = made.compilers;
  answer.json["failed"] = Json::array();
  for (const Precompiled::Failure& failure : made.failures) {
    answer.json["failed"].push_back(
        {{"job", failure.job}, {"message", failure.message}, {"log", failure.log}});
    answer.text += fmt::format("FAILED {}\n  {}\n", failure.job, failure.message);
    if (!failure.log.empty()) answer.text += failure.log + (failure.log.ends_with('\n') ? "" : "\n");
  }
  answer.text += fmt::format("{} kernels: {} compiled, {} from the store", made.entries.size(), made.compiled,
                             made.found);
  if (!made.failures.empty()) answer.text += fmt::format("; {} FAILED", made.failures.size());
  answer.text += made.compilers.empty() ? "\n" : fmt::format("; by {}\n", fmt::join(made.compilers, ", "));
  for (const std::string& compiler : made.without_ptx)
    answer.warnings.push_back(fmt::format(
        "{} is newer than the driver: it loads the cubins, each on its architecture, and not the PTX, "
        "which other architectures need",
        compiler));
  for (const std::string& warning : made.warnings)
    answer.warnings.push_back(fmt::format("what was compiled is not kept: {}", warning));
  if (!made.failures.empty()) answer.status = kFailed;
  answer.json["pack"] = nullptr;
  if (!made.failures.empty() && !arguments.keep_going) {
    answer.text += fmt::format("{} is not written; with --keep-going it would hold the others\n",
                               printable(arguments.output.string()));
    return;
  }
  cache::write_pack(arguments.output, made.entries);
  const std::size_t bytes = cache::Pack::open(arguments.output)->bytes();
  answer.json["pack"] = arguments.output.string();
  answer.json["bytes"] = bytes;
  answer.text += fmt::format("wrote {}, {} bytes\n", printable(arguments.output.string()), bytes);
}

Answer precompile(const PrecompileArguments& arguments) {
  Answer answer;
  check(arguments);
  cache::check_pack_can_be_written(arguments.output);  // before hours of work
  std::vector<KernelJob> jobs =
      jobs_of(arguments.what, arguments.files, arguments.archs, arguments.from_store, answer);
  if (jobs.empty())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("precompile: this store has seen no kernel that can be made again{}{}",
                            answer.warnings.empty() ? "" : ":\n  ", fmt::join(answer.warnings, "\n  ")));
  if (const auto driver = driver_of(arguments))
    for (KernelJob& job : jobs)
      if (devices_of(job.job.target).toolchain != nullptr) job.job.toolchain = *driver;
  for (KernelJob& job : jobs) job.job.toolchain.line_info = !arguments.lean;
  jobs = jobs_of_shard(std::move(jobs), parse_shard(arguments.shard));
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  report(precompile_all(jobs, arguments.workers == 0 ? cores : static_cast<std::size_t>(arguments.workers)),
         arguments, answer);
  return answer;
}

}  // namespace

void add_precompile(CLI::App& root, Invocation& invocation) {
  CLI::App& app = *root.add_subcommand(
      "precompile", "compiles many kernels for many architectures into one pack; needs no device");
  const auto arguments = std::make_shared<PrecompileArguments>();
  app.add_option("FILE", arguments->files,
                 "layouts, compiled with the options below; and jobs files (.json), which have their own");
  app.add_option("--arch", arguments->archs,
                 "what to compile for, joined by commas: sm_80,sm_90, h100, x86-64-v3:8 … "
                 "(else what a jobs file or the store says)")
      ->delimiter(',');
  app.add_option(
      "--driver", arguments->driver,
      "version of CUDA of the oldest driver that shall load the pack, as nvidia-smi shows it: 12.4 "
      "(else this machine's driver; without one any, and the newest NVRTC found compiles)");
  app.add_flag("--from-store", arguments->from_store, "all that the store has seen, too");
  app.add_option("--jobs", arguments->workers, "kernels to compile at once (one a core where not given)")
      ->check(whole_number());
  add_shard(app, arguments->shard);
  app.add_flag("--lean", arguments->lean,
               "code that does not name the lines of its source: a third of the bytes. What the store has "
               "already stays as it is");
  app.add_flag("--keep-going", arguments->keep_going,
               "write the pack also where some failed, without them; the exit status is 1 all the same");
  app.add_option("-o,--output", arguments->output, "the pack to write")->required();
  add_problem(app, arguments->what);
  add_json(app, invocation);
  app.callback(
      [&invocation, arguments] { invocation.command = [arguments] { return precompile(*arguments); }; });
}

}  // namespace sparsekiln::tools
