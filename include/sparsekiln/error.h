#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace sparsekiln {

/// What went wrong, in the terms of a caller who decides what to do next.
enum class ErrorKind {
  invalid_argument,  ///< the request makes no sense; asking again will not help
  compile,           ///< NVRTC or LLVM refused the emitted source; `log()` and `source()` say more
  driver,            ///< the CUDA driver, or the machine, could not do it
  io,                ///< a file could not be read or written (what it holds is `invalid_argument`)
  cache,             ///< a cache entry or pack could not be read where one was required
  internal,          ///< a defect of this library
};

/// The field's name: "invalid argument", "compile", "driver", "file", "cache", "internal".
[[nodiscard]] std::string_view name(ErrorKind kind);

/// The one exception of this library. `what()`, printable, says what was asked, is wrong and would work.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, std::string log = {}, std::string source = {});

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  /// The compiler's log, whole; empty unless the kind is `compile`, or `driver` where the driver compiled
  /// PTX.
  [[nodiscard]] const std::string& log() const noexcept { return log_; }
  /// The source that was being compiled; empty unless the kind is `compile`.
  [[nodiscard]] const std::string& source() const noexcept { return source_; }

 private:
  ErrorKind kind_;
  std::string log_;
  std::string source_;
};

}  // namespace sparsekiln
