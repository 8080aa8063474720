#include "system/times.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>

#include <fcntl.h>

#include "system/file.h"

namespace sparsekiln {

Timed::~Timed() {
  const char* const file = std::getenv("SPARSEKILN_TIMES");
  if (file == nullptr) return;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began_;
  char line[64];
  const int length = std::snprintf(line, sizeof line, "%.32s %.6f\n", what_, took.count());
  const Descriptor to = open_file(file, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (to.open())
    static_cast<void>(write_all(to.get(), std::as_bytes(std::span(line, static_cast<std::size_t>(length)))));
}

}  // namespace sparsekiln
