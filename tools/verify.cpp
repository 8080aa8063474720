#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "runtime/cuda/emulator.h"
#include "runtime/open_device.h"
#include "runtime/test_launch.h"
#include "tools/binary_report.h"
#include "tools/check_report.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/store_warning.h"

namespace sparsekiln::tools {
namespace {

struct VerifyArguments {
  KernelArguments what;
  LaunchArguments launch;
  std::uint64_t first_seed = 0;
  std::int64_t seeds = 8;
};

/// The inputs are the same under every seed: so must the results be.
constexpr std::uint64_t kInputs = 1;

/// One kernel, run under one seed after another.
class Verification {
 public:
  Verification(const VerifyArguments& arguments, const Problem& problem, const TestLaunchShape& launch,
               std::shared_ptr<const Binary> binary)
      : target_(arguments.what.target),
        binary_(std::move(binary)),
        exact_(make_test_launch(problem, launch, Inputs::small_integers, kInputs)),
        random_(make_test_launch(problem, launch, Inputs::random, kInputs)) {
    emulator_.set_checks(EMULATOR_CHECK_ALL);
  }

  /// Whether nothing was found under `seed`; else, and in any case, `answer` says what was seen.
  bool run(std::uint64_t seed, Answer& answer) {
    emulator_.set_seed(seed);
    Json json = {{"seed", seed}};
    std::string found;
    try {
      found = run_once(json);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::driver) throw;
      found = error.what();
      // What comes after needs a context that no kernel has spoilt.
      emulator_.reset_device(cuda::open_emulated(binary_->target.compute_capability())->device().ordinal);
    }
    json["ok"] = found.empty();
    if (!found.empty()) json["found"] = found;
    answer.json["seeds"].push_back(json);
    answer.text += fmt::format("seed {}: {}\n", seed, found.empty() ? "nothing found" : found);
    return found.empty();
  }

 private:
  /// The fault of a run; empty where there is none.
  std::string run_once(Json& json) {
    const std::shared_ptr<const Device> device = open_device(target_);
    const Kernel kernel = load(binary_, target_);
    Checked checked;
    std::vector<std::byte> image;
    checked.exact = judge(kernel, device, *exact_);
    checked.random = judge(kernel, device, *random_, &image);
    json["exact"] = describe(checked.exact);
    json["random"] = describe(checked.random);
    if (!checked.exact.ok) return fmt::format("small integers: {}", checked.exact.first_failure);
    if (!checked.random.ok) return fmt::format("random: {}", checked.random.first_failure);
    if (first_image_.empty()) first_image_ = image;
    return image == first_image_ ? "" : "the same inputs gave other bits than under the first seed";
  }

  std::string target_;
  std::shared_ptr<const Binary> binary_;
  std::unique_ptr<const TestLaunch> exact_;
  std::unique_ptr<const TestLaunch> random_;
  cuda::Emulator emulator_;
  std::vector<std::byte> first_image_;
};

Answer verify(const VerifyArguments& arguments) {
  const Options options = arguments.what.options();
  if (!names_emulator(options.target))
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("--target {}: kernels are verified on the emulator, --target emulated or emulated:sm_80; "
                    "`run --check` takes other targets",
                    printable(options.target)));
  if (arguments.seeds < 1)
    throw Error(ErrorKind::invalid_argument, fmt::format("--seeds {}: 1 or more are tried", arguments.seeds));
  const TestLaunchShape launch = shape_of(arguments.launch, options);
  const Layout layout = Layout::load(arguments.what.file);
  const Problem problem = make_problem(layout, options);
  const Built built = build_for(arguments.what, layout, options);

  Answer answer;
  answer.json = {{"file", arguments.what.file.string()}, {"n", launch.n}, {"seeds", Json::array()}};
  answer.text = summarize_binary(*built.binary, built.from, built.key, built.compile_ms);
  warn_if_not_kept(built, answer);
  Verification verification(arguments, problem, launch, built.binary);
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < arguments.seeds; ++i)
    if (!verification.run(arguments.first_seed + static_cast<std::uint64_t>(i), answer)) ++found;
  answer.json["found"] = found;
  answer.json.update(describe_binary(*built.binary, built.from, built.key, built.compile_ms));
  answer.text +=
      found == 0 ? fmt::format("verified under {} seed{}\n", arguments.seeds, arguments.seeds == 1 ? "" : "s")
                 : fmt::format("WRONG under {} of {} seeds\n", found, arguments.seeds);
  if (found != 0) answer.status = kFailed;
  return answer;
}

}  // namespace

void add_verify(CLI::App& root, Invocation& invocation) {
  CLI::App& app = *root.add_subcommand(
      "verify", "compiles a layer and runs it on the emulator under several seeds, all checks on");
  const auto arguments = std::make_shared<VerifyArguments>();
  arguments->what.target = "emulated";
  add_kernel(app, arguments->what);
  add_launch(app, arguments->launch);
  app.add_option("--seeds", arguments->seeds, "how many orders of warps, blocks and copies to try")
      ->check(whole_number())
      ->capture_default_str();
  app.add_option("--first-seed", arguments->first_seed, "the first of them")
      ->check(natural_number())
      ->capture_default_str();
  add_json(app, invocation);
  app.callback([&invocation, arguments] { invocation.command = [arguments] { return verify(*arguments); }; });
}

}  // namespace sparsekiln::tools
