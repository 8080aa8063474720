#pragma once

#include <chrono>

namespace sparsekiln {

/// What takes long says so: where SPARSEKILN_TIMES names a file, "WHAT SECONDS" is appended to it as a line
/// when this ends. A file that cannot be written is ignored.
class Timed {
 public:
  explicit Timed(const char* what) : what_(what), began_(std::chrono::steady_clock::now()) {}
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  ~Timed();

 private:
  const char* what_;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace sparsekiln
