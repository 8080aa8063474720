#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/types.h>

namespace sparsekiln {

/// An open file descriptor; closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool open() const { return fd_ >= 0; }
  /// Closes it now: 0 or errno, since NFS reports a full disk only here.
  [[nodiscard]] int close();
  /// Gives the descriptor to the caller, who must close it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// Opens a file as openat does, in a folder (AT_FDCWD: the working folder); O_CLOEXEC is added. Not open()
/// if that fails; errno then says why. The descriptor is never 0, 1 or 2: where the program has closed one of
/// these, it may still write messages to it, which must not end in a file of ours.
[[nodiscard]] Descriptor open_file(int folder, const std::filesystem::path& name, int flags, mode_t mode = 0);
[[nodiscard]] inline Descriptor open_file(const std::filesystem::path& file, int flags, mode_t mode = 0) {
  return open_file(AT_FDCWD, file, flags, mode);
}

/// Fills `bytes` from a file and shortens them to the size of the file. Returns 0 or errno.
[[nodiscard]] int read_into(int file, std::vector<std::byte>& bytes);
/// Writes all of `bytes`, also to a pipe that another program has made non-blocking. Returns 0 or errno:
/// EFBIG at a limit of file sizes and EPIPE at a pipe that no process reads, without the signals that would
/// end the program.
[[nodiscard]] int write_all(int file, std::span<const std::byte> bytes);

}  // namespace sparsekiln
