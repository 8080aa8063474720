#pragma once

namespace sparsekiln::tools {

/// The `sparsekiln` command. Its exit status: 0 done, 1 it failed, 2 the arguments make no sense.
[[nodiscard]] int run_command_line(int argc, char** argv);

}  // namespace sparsekiln::tools
