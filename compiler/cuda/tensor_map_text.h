#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <sparsekiln/binary.h>

namespace sparsekiln::cuda {

// How a kernel takes the tensor maps of its Instance: as its last parameters before the tables.

/// Makes an entry bring them, after the arguments that it has.
void add_tensor_maps(Entry& entry, const std::vector<TensorMap>& maps);

/// Their parameters, with a comma in front of each; empty without any.
[[nodiscard]] std::string declared_tensor_maps(std::size_t count);
/// The parameters as arguments of the template's function, with a comma in front of each.
[[nodiscard]] std::string passed_tensor_maps(std::size_t count);

}  // namespace sparsekiln::cuda
