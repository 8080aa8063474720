#pragma once

#include <string_view>

namespace sparsekiln::templates {

/// The text of one header of this folder, by its file name ("spmm_simt.cuh"). Throws `internal` for others.
[[nodiscard]] std::string_view text(std::string_view file);

}  // namespace sparsekiln::templates
