#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include <utility>

namespace sparsekiln {

std::string_view name(ErrorKind kind) {
  static constexpr std::string_view kNames[] = {"invalid argument", "compile", "driver", "file", "cache",
                                                "internal"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(ErrorKind::internal) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

Error::Error(ErrorKind kind, const std::string& message, std::string log, std::string source)
    : std::runtime_error(printable_lines(message)),
      kind_(kind),
      log_(printable_lines(log)),
      source_(std::move(source)) {}

}  // namespace sparsekiln
