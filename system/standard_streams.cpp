#include "system/standard_streams.h"

#include <cerrno>
#include <span>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include <sparsekiln/error.h>

#include "system/file.h"

namespace sparsekiln {

void hold_standard_streams() noexcept {
  // With O_PATH, reading and writing fail with EBADF, as they would for the closed stream.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0) static_cast<void>(::open("/", O_PATH));
}

void write_message(std::string_view text) noexcept {
  static_cast<void>(write_all(STDERR_FILENO, std::as_bytes(std::span(text))));
}

void write_results(std::string_view text) {
  const int error = write_all(STDOUT_FILENO, std::as_bytes(std::span(text)));
  if (error != 0 && error != EPIPE)
    throw Error(ErrorKind::io, "cannot write to standard output: " + std::generic_category().message(error));
}

}  // namespace sparsekiln
