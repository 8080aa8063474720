#include "tools/layout_mix.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/layout.h>
#include <sparsekiln/mixing.h>
#include <sparsekiln/printable.h>

#include "tools/entry_report.h"
#include "tools/options.h"

namespace sparsekiln::tools {
namespace {

using patterns::Mixing;

constexpr std::int64_t kMostSteps = 1000;

struct MixArguments {
  std::vector<std::filesystem::path> files;
  std::optional<std::int64_t> steps;
};

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

std::string shown(const std::filesystem::path& file) { return printable(file.string()); }

/// Makes one file several layers.
void repeat(MixArguments& arguments, std::vector<Layout>& layers) {
  if (arguments.files.size() > 1)
    refuse(fmt::format("--steps repeats one layout, and {} files are given; give one, or no --steps",
                       arguments.files.size()));
  if (*arguments.steps < 1 || *arguments.steps > kMostSteps)
    refuse(fmt::format("--steps is {}; expected 1 to {}", *arguments.steps, kMostSteps));
  const Layout layer = layers.front();
  if (layer.rows() != layer.cols())
    refuse(fmt::format("--steps repeats a square layout, and {} has {} × {} blocks",
                       shown(arguments.files.front()), layer.rows(), layer.cols()));
  layers.assign(static_cast<std::size_t>(*arguments.steps), layer);
  arguments.files.assign(layers.size(), arguments.files.front());
}

std::vector<Layout> load_layers(MixArguments& arguments) {
  std::vector<Layout> layers;
  for (const std::filesystem::path& file : arguments.files) {
    layers.push_back(Layout::load(file));
    const std::size_t k = layers.size() - 1;
    if (k > 0 && layers[k].cols() != layers[k - 1].rows())
      refuse(
          fmt::format("{} has {} block columns, and {}, the layer before it, has {} block rows; the "
                      "outputs of a layer are the inputs of the next, so both must be the same",
                      shown(file), layers[k].cols(), shown(arguments.files[k - 1]), layers[k - 1].rows()));
  }
  if (arguments.steps) repeat(arguments, layers);
  return layers;
}

std::string layers_text(std::int64_t layers) {
  return fmt::format("{} layer{}", layers, layers == 1 ? "" : "s");
}

/// Three digits after the point, and 100 only for all.
std::string percent(double share) {
  return share == 1 ? "100" : fmt::format("{:.3f}", std::min(100 * share, 99.999));
}

Answer mix(MixArguments arguments) {
  const std::vector<Layout> layers = load_layers(arguments);
  const std::vector<Mixing> after = patterns::mixing(layers);
  const auto complete =
      std::find_if(after.begin(), after.end(), [](const Mixing& one) { return one.share == 1; });
  Answer answer;
  answer.json = {{"input_blocks", layers.front().cols()}, {"layers", Json::array()}};
  std::vector<std::vector<std::string>> rows{
      {"LAYERS", "MINIMUM", "MEDIAN", "MEAN", "MAXIMUM", "OUT OF", "PAIRS_%", "LAST LAYER"}};
  for (std::size_t k = 0; k < layers.size(); ++k) {
    const Mixing& one = after[k];
    const std::int32_t outputs = layers[k].rows();
    answer.json["layers"].push_back({{"file", arguments.files[k].string()},
                                     {"output_blocks", outputs},
                                     {"minimum", one.minimum},
                                     {"median", one.median},
                                     {"mean", one.mean},
                                     {"maximum", one.maximum},
                                     {"share", one.share}});
    rows.push_back({fmt::format("{}", k + 1), fmt::format("{}", one.minimum), fmt::format("{}", one.median),
                    fmt::format("{:.2f}", one.mean), fmt::format("{}", one.maximum),
                    fmt::format("{}", outputs), percent(one.share), arguments.files[k].string()});
  }
  answer.text = fmt::format("output blocks that an input block reaches, of {} input blocks\n{}",
                            layers.front().cols(), table(rows));
  if (complete == after.end()) {
    answer.json["complete_after"] = nullptr;
    answer.text += fmt::format("not everything is reached after {}\n", layers_text(std::ssize(layers)));
  } else {
    const std::int64_t first = complete - after.begin() + 1;
    answer.json["complete_after"] = first;
    answer.text +=
        fmt::format("every output block is reached from every input block after {}\n", layers_text(first));
  }
  return answer;
}

}  // namespace

void add_mix(CLI::App& layout, Invocation& invocation) {
  CLI::App& app =
      *layout.add_subcommand("mix", "how many output blocks an input block reaches after k layers");
  const auto arguments = std::make_shared<MixArguments>();
  app.add_option(
         "FILE", arguments->files,
         "layouts of the layers, the first one first: the block rows of each are the block columns of "
         "the next")
      ->required();
  app.add_option("--steps", arguments->steps, "applies one square layout so many times")
      ->check(whole_number());
  add_json(app, invocation);
  app.callback([&invocation, arguments] { invocation.command = [arguments] { return mix(*arguments); }; });
}

}  // namespace sparsekiln::tools
