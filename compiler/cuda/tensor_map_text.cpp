#include "compiler/cuda/tensor_map_text.h"

#include <fmt/format.h>

namespace sparsekiln::cuda {

void add_tensor_maps(Entry& entry, const std::vector<TensorMap>& maps) {
  entry.tensor_maps = maps;
  entry.arguments.insert(entry.arguments.end(), maps.size(), Argument::tensor_map);
}

std::string declared_tensor_maps(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i)
    text += fmt::format(",\n    const __grid_constant__ sparsekiln::TensorMap map_{}", i);
  return text;
}

std::string passed_tensor_maps(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += fmt::format(", map_{}", i);
  return text;
}

}  // namespace sparsekiln::cuda
