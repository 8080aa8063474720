#include "tools/kernel_arguments.h"

#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "compiler/computation_fields.h"
#include "compiler/tap_file.h"
#include "runtime/prebuilt.h"

namespace sparsekiln::tools {

std::vector<std::string> usual_texts() {
  std::vector<std::string> texts;
  for (const ComputationField& field : computation_fields()) texts.push_back(field.usual());
  return texts;
}

std::string& KernelArguments::text_of(std::string_view field) {
  const auto index = &computation_field(field) - computation_fields().data();
  return fields[static_cast<std::size_t>(index)];
}

Options KernelArguments::options() const {
  Options options;
  const auto known = computation_fields();
  const ComputationField& convolution = computation_field("convolution");
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (fields[i] == known[i].usual()) continue;
    const bool turned = transposed && known[i].name == convolution.name;
    known[i].read(options, turned ? fields[i] + " transposed" : fields[i]);
  }
  if ((transposed || !taps.empty()) && !options.convolution.present())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} without {}: such as {} '{}' would work", transposed ? "transposed" : "taps",
                            convolution.option, convolution.option, convolution.example));
  if (!taps.empty()) options.convolution = with_taps_of(taps, std::move(options.convolution));
  options.in_features = in_features;
  options.out_features = out_features;
  options.target = target;
  if (!config.empty()) options.config = parse_config(config);
  options.specialization = specialization_of(attached, tiered);
  options.cache_dir = cache_dir;
  options.packs = packs;
  options.require = parse_require(require);
  return options;
}

Built build_for(const KernelArguments& arguments, const Layout& layout, const Options& options) {
  try {
    return build(layout, options);
  } catch (const MissingPrebuilt& missing) {
    throw missing.for_file(arguments.file.string());
  }
}

Kernel compile_for(const KernelArguments& arguments, const Layout& layout, const Options& options) {
  try {
    return sparsekiln::compile(layout, options);
  } catch (const MissingPrebuilt& missing) {
    throw missing.for_file(arguments.file.string());
  }
}

}  // namespace sparsekiln::tools
