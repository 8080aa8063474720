#include "tools/check_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "tools/options.h"

namespace sparsekiln::tools {

namespace {

std::int64_t batch_of(std::optional<std::int64_t> asked, Batch batch) {
  if (!asked) return batch.bound();
  if (*asked < 0 || *asked > batch.bound() || (!batch.dynamic() && *asked != batch.bound()))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--n {} does not fit --batch {}: {}", *asked, to_string(batch),
                            batch.dynamic() ? fmt::format("it is 0 to {}", batch.bound())
                                            : fmt::format("--batch up-to:{} takes it", *asked)));
  return *asked;
}

}  // namespace

void add_launch(CLI::App& app, LaunchArguments& arguments) {
  app.add_option("--n", arguments.n,
                 "entries in the batch of this run, images of a convolution, for --batch up-to:N")
      ->check(whole_number());
  app.add_option("--input", arguments.input,
                 "extents of the images of this run, such as 24x20, for a convolution with input=up-to:HxW");
}

TestLaunchShape shape_of(const LaunchArguments& arguments, const Options& options) {
  TestLaunchShape shape{.n = batch_of(arguments.n, options.batch)};
  const Convolution& convolution = options.convolution;
  if (!arguments.input) return shape;
  if (!convolution.present())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--input {}: a linear layer has no images; --conv \"kernel=3x3 input=up-to:{}\" "
                            "would take it",
                            printable(*arguments.input), printable(*arguments.input)));
  if (!convolution.dynamic)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--input {}: --conv \"... input=up-to:{}\" would take it",
                            printable(*arguments.input), printable(*arguments.input)));
  shape.input = parse_extents(*arguments.input, convolution.dimensions);
  static_cast<void>(convolution.at(shape.input));
  return shape;
}

CheckResult judge(const Kernel& kernel, const std::shared_ptr<const Device>& device,
                  const TestLaunch& test_launch, std::vector<std::byte>* image) {
  const std::unique_ptr<PlacedOperands> placed = test_launch.place(kernel, device);
  placed->launch(kernel);
  device->synchronize();
  if (image != nullptr) image->clear();
  return placed->judge(kernel.binary().plan, image);
}

Json describe(const CheckResult& check_result) {
  return {{"ok", check_result.ok},
          {"wrong", check_result.wrong},
          {"unwritten", check_result.unwritten},
          {"stray", check_result.stray},
          {"first_failure", check_result.first_failure}};
}

void report_check(const Checked& checked, Answer& answer) {
  const double ratio = std::max(checked.exact.max_error_ratio, checked.random.max_error_ratio);
  answer.json["checked"] = true;
  answer.json["rel_error"] = checked.random.rel_error;
  answer.json["max_error_ratio"] = ratio;
  answer.json["exact"] = describe(checked.exact);
  answer.json["random"] = describe(checked.random);
  answer.text += fmt::format(
      "check: small integers {}, random {}; relative error {:.3g}, largest error / bound {:.3g}\n",
      checked.exact.ok ? "exact" : "WRONG", checked.random.ok ? "ok" : "WRONG", checked.random.rel_error,
      ratio);
  for (const CheckResult* check_result : {&checked.exact, &checked.random})
    if (!check_result->ok) answer.text += fmt::format("  {}\n", check_result->first_failure);
  if (!checked.ok()) answer.status = kFailed;
}

}  // namespace sparsekiln::tools
