#pragma once

#include <string_view>

namespace sparsekiln {

/// Called first by a program: where it was started with standard input, output or error closed, the number is
/// taken by a descriptor that can be neither read nor written, so that no file that is opened later gets it.
void hold_standard_streams() noexcept;

/// Writes a message to standard error at once. Where that is closed, full, or a pipe that no process reads,
/// there is no message, and the program goes on.
void write_message(std::string_view text) noexcept;

/// Writes results to standard output at once. A reader that has closed the pipe (`| head`) has what it wants;
/// everything else throws `io`: "cannot write to standard output: why".
void write_results(std::string_view text);

}  // namespace sparsekiln
