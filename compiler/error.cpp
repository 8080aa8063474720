#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include <utility>

namespace sparsekiln {

std::string_view name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return "invalid argument";
    case ErrorKind::compile:
      return "compile";
    case ErrorKind::driver:
      return "driver";
    case ErrorKind::io:
      return "file";
    case ErrorKind::cache:
      return "cache";
    case ErrorKind::internal:
      return "internal";
  }
  return "unknown";
}

Error::Error(ErrorKind kind, const std::string& message, std::string log, std::string source)
    : std::runtime_error(printable_lines(message)),
      kind_(kind),
      log_(printable_lines(log)),
      source_(std::move(source)) {}

}  // namespace sparsekiln
