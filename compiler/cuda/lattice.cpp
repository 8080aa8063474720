#include "compiler/cuda/lattice.h"

#include <array>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "compiler/cuda/refusal.h"
#include "compiler/cuda/table_text.h"
#include "compiler/edge_runs.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::int32_t kMostBits = 64;

void add(Declarations& members, std::string_view name, const Convolution::Extents& extents) {
  constexpr std::array<std::string_view, 3> kDimensions{"d", "h", "w"};
  for (std::size_t i = 0; i < extents.size(); ++i)
    members.number(fmt::format("{}_{}", name, kDimensions[i]), extents[i]);
}

/// What a convolution's lattice is.
Declarations lattice_declarations(const Convolution& convolution, const Correlation& correlation,
                                  bool mirrored) {
  Declarations members;
  add(members, "in_step", correlation.in_step);
  add(members, "out_step", correlation.out_step);
  add(members, "kernel", convolution.kernel);
  add(members, "dilation", convolution.dilation);
  add(members, "padding", convolution.padding_before);
  if (!correlation.dynamic) {
    add(members, "points", correlation.points);
    add(members, "input", correlation.input);
    add(members, "output", correlation.output);
  }
  members.flag("mirrored", mirrored, "the gradient by the input");
  return members;
}

}  // namespace

void validate_lattice(const Computation& computed) {
  const auto& kernel = computed.convolution.kernel;
  const std::int64_t bits = std::int64_t{kernel[0]} + kernel[1] + kernel[2];
  if (bits > kMostBits)
    refuse(
        fmt::format("a convolution with a kernel of depth {}, height {} and width {}, added up {}: for CUDA "
                    "targets they are {} together at most",
                    kernel[0], kernel[1], kernel[2], bits, kMostBits));
}

Declarations image_declarations(const Convolution& convolution, const Correlation* correlation, bool gathers,
                                bool mirrored) {
  Declarations members;
  members.flag("dynamic_images", convolution.dynamic, "their extents come with the launch");
  members.flag("convolves", gathers, "rows are points of a lattice");
  if (!convolution.dynamic)
    members.number("rows_of_one", correlation == nullptr ? 1 : correlation->image_lattice_points(),
                   "rows for each of the batch");
  if (gathers || convolution.dynamic)
    members.append(lattice_declarations(convolution, *correlation, mirrored));
  return members;
}

void write_edge_runs(Source& source, const Convolution& convolution) {
  const EdgeRuns runs = edge_runs(convolution);
  std::vector<std::int32_t> begins;
  for (const std::vector<std::int32_t>& of_dimension : runs.begins)
    begins.insert(begins.end(), of_dimension.begin(), of_dimension.end());
  source.text += "\n// Where runs of outputs that meet the padding alike begin, and the situation of each.\n";
  ArrayWriter arrays(source, 0, TablePlace::global);
  arrays.write("edge_begins", begins);
  arrays.write("edge_situations", runs.situations);
  const auto [depth, height, width] = convolution.output();
  source.text += fmt::format(
      "struct EdgeRuns {{\n"
      "  enum : int {{\n"
      "    output_d = {}, output_h = {}, output_w = {},\n"
      "    begins_d = {}, begins_h = {}, begins_w = {},\n"
      "  }};\n"
      "  __device__ static int begin(int index) {{ return {}; }}\n"
      "  __device__ static int situation(int index) {{ return {}; }}\n"
      "}};\n",
      depth, height, width, runs.begins[0].size(), runs.begins[1].size(), runs.begins[2].size(),
      element_text("edge_begins", 0, TablePlace::global, "index"),
      element_text("edge_situations", 0, TablePlace::global, "index"));
}

}  // namespace sparsekiln::cuda
