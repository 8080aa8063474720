#pragma once

#include "tools/command.h"

namespace sparsekiln::tools {

/// Adds `mix` to `layout`: how many units are reached after k layers.
void add_mix(CLI::App& layout, Invocation& invocation);

}  // namespace sparsekiln::tools
