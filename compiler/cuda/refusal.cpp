#include "compiler/cuda/refusal.h"

#include <string>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::cuda {

void refuse(std::string_view why) { throw Error(ErrorKind::invalid_argument, std::string(why)); }

void refuse(const Config& config, std::string_view why) {
  refuse(fmt::format("config '{}': {}", to_string(config), why));
}

}  // namespace sparsekiln::cuda
