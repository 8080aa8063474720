#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>

#include "compiler/backend.h"
#include "compiler/block_runs.h"
#include "compiler/build.h"
#include "compiler/problem_kind.h"
#include "compiler/schedule.h"
#include "tools/binary_report.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/publish.h"
#include "tools/schedule_report.h"
#include "tools/store_warning.h"

namespace sparsekiln::tools {
namespace {

struct CompileArguments {
  KernelArguments what;
  std::filesystem::path output;
};

Json describe_schedules(const Problem& problem, const Binary& binary) {
  Json ranges = Json::array();
  const auto describe = [&](const auto& kind) {
    const auto schedules = make_schedules(kind, binary.target, binary.plan);
    for (std::size_t entry = 0; entry < binary.plan.size(); ++entry) {
      const RangedConfig& range = binary.plan[entry];
      Json whole = {{"up_to", range.up_to}, {"config", to_string(range.config)}};
      whole.update(describe_schedule(schedules[entry]));
      ranges.push_back(whole);
    }
  };
  std::visit(describe, computed_by(problem, binary.target));
  return {{"target", binary.target.to_string()}, {"ranges", ranges}};
}

/// Everything that was made on the way, as files. A Binary from the store has its source emitted again.
std::vector<NamedBytes> all_stages(const Problem& problem, const Built& built) {
  const Binary& binary = *built.binary;
  const std::string source = emit_source(problem, binary.target, binary.plan);
  if (Digest::of(source) != binary.source)
    throw Error(ErrorKind::internal,
                "the source emitted now is not the one that the stored Binary was made of");
  const Backend& backend = backend_of(binary.target);
  std::vector<NamedBytes> files;
  files.push_back(named(fmt::format("kernel{}", backend.source_suffix), source));
  files.push_back(named(fmt::format("kernel{}", backend.code_suffix), std::span(binary.code)));
  if (!binary.ptx.empty()) files.push_back(named("kernel.ptx", binary.ptx));
  for (const ModuleData& data : binary.data)
    files.push_back(named(data_file("kernel", data), std::span(data.bytes)));
  files.push_back(named("schedule.json", describe_schedules(problem, binary).dump(1) + "\n"));
  files.push_back(named("resources.json", describe_entries(binary).dump(2) + "\n"));
  files.push_back(named("compile.log", binary.log));
  return files;
}

Answer compile(const CompileArguments& arguments) {
  const Options options = arguments.what.options();
  const Layout layout = Layout::load(arguments.what.file);
  const Problem problem = make_problem(layout, options);
  const Built built = build_for(arguments.what, layout, options);
  Answer answer;
  answer.json = {{"file", arguments.what.file.string()},
                 {"tiered", options.specialization == Specialization::tiered}};
  answer.json.update(describe_binary(*built.binary, built.from, built.key, built.compile_ms));
  answer.text = summarize_binary(*built.binary, built.from, built.key, built.compile_ms);
  warn_if_not_kept(built, answer);
  if (arguments.output.empty()) return answer;
  publish_folder(arguments.output, all_stages(problem, built), answer);
  return answer;
}

}  // namespace

void add_compile(CLI::App& root, Invocation& invocation) {
  CLI::App& app = *root.add_subcommand("compile", "compiles a layer for a target; needs no device");
  const auto arguments = std::make_shared<CompileArguments>();
  add_kernel(app, arguments->what);
  app.add_option("-o,--output", arguments->output,
                 "folder for source, machine code, schedule, resources and log: all of them or none")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return text.empty() ? std::string("'' is not a folder: write . for this one") : std::string();
          },
          ""));
  add_json(app, invocation);
  app.callback(
      [&invocation, arguments] { invocation.command = [arguments] { return compile(*arguments); }; });
}

}  // namespace sparsekiln::tools
