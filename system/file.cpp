#include "system/file.h"

#include <cerrno>

#include <poll.h>
#include <unistd.h>

#include "system/signals_as_errors.h"

namespace sparsekiln {

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

int Descriptor::close() {
  const int fd = std::exchange(fd_, -1);
  // After EINTR, Linux has closed the file all the same.
  return fd < 0 || ::close(fd) == 0 || errno == EINTR ? 0 : errno;
}

Descriptor open_file(int folder, const std::filesystem::path& name, int flags, mode_t mode) {
  Descriptor file(::openat(folder, name.c_str(), flags | O_CLOEXEC, mode));
  if (!file.open() || file.get() > STDERR_FILENO) return file;
  return Descriptor(::fcntl(file.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

int read_into(int file, std::vector<std::byte>& bytes) {
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::read(file, bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  bytes.resize(filled);
  return 0;
}

int write_all(int file, std::span<const std::byte> bytes) {
  const SignalsAsErrors signals_as_errors;
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd room{file, POLLOUT, 0};
      ::poll(&room, 1, -1);
      continue;
    }
    if (written < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace sparsekiln
