#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/layout.h>
#include <sparsekiln/printable.h>

#include "autotune/default_plan.h"
#include "compiler/computation_fields.h"
#include "compiler/layout_file/disk.h"
#include "compiler/layout_picture.h"
#include "compiler/schedule.h"
#include "tools/command.h"
#include "tools/layout_mix.h"
#include "tools/layout_patterns.h"
#include "tools/options.h"
#include "tools/picture.h"
#include "tools/schedule_drawing.h"
#include "tools/schedule_report.h"

namespace sparsekiln::tools {
namespace {

constexpr std::int32_t kDrawingWidth = 64;
constexpr std::int32_t kDrawingLines = 32;

struct MakeArguments {
  std::string pattern;
  PatternArguments of_pattern;
  std::filesystem::path output;
};

struct ShowArguments {
  std::filesystem::path file;
  std::filesystem::path png;
  bool schedule = false;
  KernelArguments scheduled;  ///< what the schedule is for; its file is not looked at
};

Json describe(const std::filesystem::path& file, const Layout& layout) {
  const LayoutStatistics& figures = layout.statistics();
  return {{"file", file.string()},
          {"rows", layout.rows()},
          {"cols", layout.cols()},
          {"blocks", layout.blocks()},
          {"density", figures.density},
          {"empty_rows", figures.empty_rows},
          {"empty_cols", figures.empty_cols},
          {"longest_row", figures.longest_row},
          {"longest_col", figures.longest_col},
          {"row_deviation", figures.row_deviation},
          {"digest", layout.digest().hex()}};
}

std::string summary(const Layout& layout) {
  const LayoutStatistics& figures = layout.statistics();
  return fmt::format("{} × {} blocks, {} present ({:.4g} %)", layout.rows(), layout.cols(), layout.blocks(),
                     100 * figures.density);
}

Answer make(const MakeArguments& arguments) {
  const Layout layout = make_pattern(arguments.pattern, arguments.of_pattern);
  layout.save(arguments.output);
  Answer answer;
  answer.json = {{"pattern", arguments.pattern}};
  answer.json.update(describe(arguments.output, layout));
  answer.text =
      fmt::format("{}: {}, {}\n", printable(arguments.output.string()), arguments.pattern, summary(layout));
  return answer;
}

/// The schedule that the code of a kernel would be made for, at the largest n.
void show_schedule(const Layout& layout, const KernelArguments& arguments, Answer& answer) {
  const Options options = arguments.options();
  const Problem problem = make_problem(layout, options);
  const Target target = resolve_target(options.target);
  const Plan plan = options.config ? pinned(*options.config, problem, target) : choose_plan(problem, target);
  const std::int64_t n = scheduled_n(problem.batch, plan, plan.size() - 1);
  const Config& config = plan.back().config;
  const Schedule schedule = make_schedule(problem, target, config, n);
  answer.json["schedule"] = describe_figures(schedule);
  answer.json["schedule"]["config"] = to_string(config);
  answer.json["schedule"]["target"] = target.to_string();
  answer.json["schedule"]["n"] = n;
  answer.json["schedule"]["waves"] = waves(schedule, target, config, n);
  answer.text += draw_schedule(problem, schedule, target, config, n);
}

Answer show(const ShowArguments& arguments) {
  const Layout layout = Layout::load(arguments.file);
  const LayoutStatistics& figures = layout.statistics();
  Answer answer;
  answer.json = describe(arguments.file, layout);
  answer.text = fmt::format(
      "{}: {}\n"
      "blocks in a row: {:.4g} on average, {} at most, deviation {:.4g}; in a column: {} at most\n"
      "empty rows: {}, empty columns: {}; digest {}\n",
      printable(arguments.file.string()), summary(layout),
      layout.rows() == 0 ? 0 : static_cast<double>(layout.blocks()) / layout.rows(), figures.longest_row,
      figures.row_deviation, figures.longest_col, figures.empty_rows, figures.empty_cols,
      layout.digest().hex());
  answer.text += draw(layout, kDrawingWidth, kDrawingLines);
  if (arguments.schedule) show_schedule(layout, arguments.scheduled, answer);
  if (!arguments.png.empty()) {
    const std::vector<std::byte> png = encode_png(picture_of(layout));
    layout_file::replace_file(arguments.png, [&](const layout_file::Sink& sink) {
      sink({reinterpret_cast<const char*>(png.data()), png.size()});
    });
    answer.json["png"] = arguments.png.string();
    answer.text += fmt::format("picture: {}\n", arguments.png.string());
  }
  return answer;
}

void add_make(CLI::App& layout, Invocation& invocation) {
  CLI::App& app = *layout.add_subcommand("make", "makes the layout of a pattern; sizes are in blocks");
  const auto arguments = std::make_shared<MakeArguments>();
  std::string names;
  for (const Pattern& pattern : known_patterns())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", pattern.name);
  app.add_option("PATTERN", arguments->pattern, "one of " + names)->required();
  PatternArguments& a = arguments->of_pattern;
  const auto whole = [&](const char* option, auto& value, const char* help) {
    app.add_option(option, value, help)->check(whole_number());
  };
  whole("--rows", a.rows, "block rows");
  whole("--cols", a.cols, "block columns");
  whole("--size", a.size, "block rows and columns of a square layout");
  app.add_option("--density", a.density, "share of present blocks, 0 to 1")->check(real_number());
  app.add_option("--rewire", a.rewire, "probability that a block is rewired, 0 to 1")->check(real_number());
  app.add_option("--seed", a.seed,
                 "of the random draws (0 where not given); a pattern without draws is the same for all")
      ->check(natural_number());
  whole("--groups", a.groups, "dense rectangles on the diagonal");
  whole("--half-width", a.half_width, "blocks of the band to each side of the diagonal");
  whole("--edges", a.edges, "edges that a new node brings");
  whole("--extra-edges", a.extra_edges, "further edges, each of a node with the fewest (0 where not given)");
  app.add_flag_function(
      "--diagonal,!--no-diagonal", [&a](std::int64_t sum) { a.diagonal = sum > 0; },
      "whether all of the diagonal is present (where not given: in barabasi-albert it is, elsewhere it need "
      "not be)");
  whole("--stride", a.stride, "blocks between the columns attended to");
  whole("--window", a.window, "blocks attended to on each side");
  whole("--global", a.global, "first blocks that attend everywhere");
  whole("--random", a.random, "further blocks a row");
  app.add_option("-o,--output", arguments->output, "file to write: .npy, .mtx, .smtx or .txt")->required();
  add_json(app, invocation);
  app.callback([&invocation, arguments] { invocation.command = [arguments] { return make(*arguments); }; });
}

void add_show(CLI::App& layout, Invocation& invocation) {
  CLI::App& app = *layout.add_subcommand("show", "figures of a layout, and a drawing of it");
  const auto arguments = std::make_shared<ShowArguments>();
  app.add_option("FILE", arguments->file,
                 "layout: .npy (2-D bool or integer), .mtx (Matrix Market), .smtx, or text of 0 and 1")
      ->required();
  app.add_option("--png", arguments->png, "writes the drawing as a picture");
  CLI::Option* const schedule = app.add_flag("--schedule", arguments->schedule,
                                             "also who computes what, what is saved and how it balances");
  arguments->scheduled.target = "h100";
  arguments->scheduled.text_of("dtype") = "f16";
  arguments->scheduled.text_of("batch") = "64";
  const auto of_schedule = [&](const char* option, std::string& value, const std::string& help) {
    app.add_option(option, value, help)->capture_default_str()->needs(schedule);
  };
  of_schedule("--block", arguments->scheduled.text_of("block"), "block shape of the schedule's kernel");
  of_schedule("--batch", arguments->scheduled.text_of("batch"), "its batch");
  of_schedule("--dtype", arguments->scheduled.text_of("dtype"),
              fmt::format("its type: {}", computation_field("dtype").choices()));
  of_schedule("--target", arguments->scheduled.target,
              "its target: an architecture (sm_90, sm_80:108), h100, cpu");
  of_schedule("--config", arguments->scheduled.config,
              "its config, e.g. \"mma tile_n=64 warps=2 rows=4\" (the default plan's where not given)");
  add_json(app, invocation);
  app.callback([&invocation, arguments] { invocation.command = [arguments] { return show(*arguments); }; });
}

}  // namespace

void add_layout(CLI::App& app, Invocation& invocation) {
  CLI::App& layout = *app.add_subcommand("layout", "makes, shows and examines layouts");
  layout.require_subcommand(1);
  add_make(layout, invocation);
  add_show(layout, invocation);
  add_mix(layout, invocation);
}

}  // namespace sparsekiln::tools
