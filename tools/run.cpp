#include <cstdint>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "autotune/statistics.h"
#include "runtime/cuda/emulator.h"
#include "runtime/device.h"
#include "runtime/open_device.h"
#include "runtime/sampler.h"
#include "runtime/test_launch.h"
#include "tools/binary_report.h"
#include "tools/check_report.h"
#include "tools/command.h"
#include "tools/counters_report.h"
#include "tools/options.h"
#include "tools/store_warning.h"

namespace sparsekiln::tools {
namespace {

struct RunArguments {
  KernelArguments what;
  LaunchArguments launch;
  bool check = false;
  bool time = false;
  bool counters = false;
  bool annotate = false;
  std::uint64_t seed = 1;
  int repeat = 20;
};

struct Timed {
  Spread ms;
  int samples = 0;
  int launches_per_sample = 1;
  Rotation rotation;
  Timing timing;
};

Timed time_layer(const Kernel& kernel, const std::shared_ptr<const Device>& device,
                 const TestLaunch& test_launch, int samples) {
  Timed timed;
  timed.samples = samples;
  timed.rotation = rotate(static_cast<std::int64_t>(test_launch.place(kernel, device)->bytes()), *device);
  timed.timing = device->timing();
  const std::unique_ptr<PlacedOperands> layer = test_launch.place(kernel, device, timed.rotation.copies);
  const auto launch = [&](void* stream) { layer->launch(kernel, stream); };
  const Sampler sampler(*device, launch);
  timed.launches_per_sample = sampler.launches_per_sample();
  std::vector<double> times;
  for (int sample = 0; sample < samples; ++sample) times.push_back(sampler.sample_ms());
  timed.ms = spread(std::move(times));
  return timed;
}

void report_timing(const Timed& timed, double flops, bool spread, Answer& answer) {
  const auto& [ms, samples, launches_per_sample, rotation, timing] = timed;
  const double gflops = flops / ms.median / 1e6;
  answer.json["run_ms"] = ms.median;
  answer.json["gflops"] = gflops;
  answer.json["timing"] = {{"p20_ms", ms.p20},          {"p80_ms", ms.p80},
                           {"samples", samples},        {"launches_per_sample", launches_per_sample},
                           {"clock", timing.clock},     {"cold", rotation.cold},
                           {"copies", rotation.copies}, {"operand_bytes", rotation.bytes}};
  if (timing.cold) answer.json["timing"]["l2_bytes"] = rotation.l2_bytes;
  answer.text += fmt::format("run: {:.4f} ms, {:.1f} GFLOP/s on non-zero work\n", ms.median, gflops);
  if (!spread) return;
  answer.text += fmt::format("  of {} samples of {} launches each: p20 {:.4f} ms, p80 {:.4f} ms\n", samples,
                             launches_per_sample, ms.p20, ms.p80);
  if (timing.cold)
    answer.text += fmt::format(
        "  by {}, {}: {} {} of all operands in turn, {:.1f} MiB in all, the L2 is {:.1f} MiB\n", timing.clock,
        rotation.cold ? "cold" : "NOT cold", rotation.copies, rotation.copies == 1 ? "copy" : "copies",
        static_cast<double>(rotation.bytes) / (1 << 20), static_cast<double>(rotation.l2_bytes) / (1 << 20));
}

/// Checks what a tiered kernel answers with at first, then waits for what the rest of the answer is about.
void await_baked(const Kernel& kernel, const std::shared_ptr<const Device>& device,
                 const TestLaunch& test_launch, bool check, Answer& answer) {
  const Tier first = kernel.tier();
  answer.json["first_tier"] = name(first);
  if (check && first == Tier::attached) {
    const CheckResult check_result = judge(kernel, device, test_launch);
    if (!check_result.ok)
      throw Error(ErrorKind::internal,
                  fmt::format("the attached kernel is wrong: {}", check_result.first_failure));
  }
  kernel.wait();
  answer.text += fmt::format("tiered: {} first, now {}\n", name(first), name(kernel.tier()));
}

void check_arguments(const RunArguments& arguments, std::string_view target, bool emulated) {
  if ((arguments.counters || arguments.annotate) && !emulated)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--target {}: only the emulator counts, --target emulated or emulated:sm_80",
                            printable(target)));
  if (arguments.repeat < 1)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--repeat {}: 1 or more samples are timed", arguments.repeat));
}

Answer run(const RunArguments& arguments) {
  const Options options = arguments.what.options();
  const TestLaunchShape launch = shape_of(arguments.launch, options);
  const bool emulated = names_emulator(options.target);
  check_arguments(arguments, options.target, emulated);
  const Layout layout = Layout::load(arguments.what.file);
  const Problem problem = make_problem(layout, options);
  const Kernel kernel = compile_for(arguments.what, layout, options);
  const std::shared_ptr<const Device> device = open_device_for(kernel.binary().target, options.target);

  Answer answer;
  answer.json = {{"file", arguments.what.file.string()}, {"device", device->description()}, {"n", launch.n}};
  answer.text = summarize_binary(kernel.binary(), kernel.from(), kernel.key(), kernel.compile_ms());
  answer.text += fmt::format("device: {}\n", printable(device->description()));
  warn_if_not_kept(options, problem, kernel.binary(), kernel.from(), answer);
  const std::unique_ptr<const TestLaunch> random =
      make_test_launch(problem, launch, Inputs::random, arguments.seed);
  if (options.specialization == Specialization::tiered)
    await_baked(kernel, device, *random, arguments.check, answer);
  answer.json["tier"] = name(kernel.tier());
  answer.json["checked"] = arguments.check;
  Checked checked;
  if (arguments.check)
    checked.exact =
        judge(kernel, device, *make_test_launch(problem, launch, Inputs::small_integers, arguments.seed));
  if (emulated) cuda::Emulator().reset_counters();  // they are of the launch that follows, and no other
  if (arguments.check || emulated) checked.random = judge(kernel, device, *random);
  if (arguments.check) report_check(checked, answer);
  if (emulated) {
    answer.json["timed"] = false;
    answer.text += "emulated: not timed\n";
    if (arguments.counters || arguments.annotate)
      report_counters(cuda::Emulator(), arguments.annotate, answer);
  } else {
    report_timing(time_layer(kernel, device, *random, arguments.time ? arguments.repeat : 5),
                  problem_of_launch(problem, launch).flops(launch.n), arguments.time, answer);
  }
  answer.json.update(describe_binary(kernel.binary(), kernel.from(), kernel.key(), kernel.compile_ms()));
  return answer;
}

}  // namespace

void add_run(CLI::App& root, Invocation& invocation) {
  CLI::App& app = *root.add_subcommand("run", "compiles a layer, runs it, and checks, counts and times it");
  const auto arguments = std::make_shared<RunArguments>();
  add_kernel(app, arguments->what);
  add_launch(app, arguments->launch);
  app.add_flag("--check", arguments->check,
               "against the oracles: small integers exactly, random numbers by a bound");
  app.add_flag("--time", arguments->time, "takes --repeat samples and says how they spread");
  app.add_option("--seed", arguments->seed, "of the inputs")->check(natural_number())->capture_default_str();
  app.add_option("--repeat", arguments->repeat, "samples of --time")
      ->check(whole_number())
      ->capture_default_str();
  app.add_flag(
      "--counters", arguments->counters,
      "on the emulator: instructions by kind, memory moved against needed, bank conflicts, divergence");
  app.add_flag("--annotate", arguments->annotate, "as --counters, and the same for each line of the PTX");
  add_json(app, invocation);
  app.callback([&invocation, arguments] { invocation.command = [arguments] { return run(*arguments); }; });
}

}  // namespace sparsekiln::tools
