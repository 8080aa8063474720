#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/stat.h>

namespace sparsekiln::cache {

/// The clock of the stamps and ages of files: the system's, which may be set back.
using WallClock = std::chrono::system_clock;
using Stamp = WallClock::time_point;

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
  /// Gives the descriptor to the caller, who must close it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// How the store opens files that exist: never through a link, and never waiting for the other end of a pipe.
extern const int kReadFlags;
/// How it creates files that must not exist yet.
extern const int kCreateFlags;
/// Only their owner may read or write files of the store.
inline constexpr mode_t kFileMode = 0600;

/// 64 random bits in hexadecimal; the process id if the kernel has no random bits yet.
[[nodiscard]] std::string random_word();
/// A unique name next to `name`: `name`, 64 random bits, ".tmp".
[[nodiscard]] std::string temporary_name(std::string_view name);

/// Fills `bytes` from a file and shortens them to the size of the file. Returns 0 or errno.
[[nodiscard]] int read_into(int file, std::vector<std::byte>& bytes);
/// Writes all of `bytes`. Returns 0 or errno.
[[nodiscard]] int write_all(int file, std::span<const std::byte> bytes);
/// Gives `name` in an open folder exactly these bytes, atomically for every reader: a temporary file next to
/// it is written, closed and renamed. Returns 0, or the errno of what failed first; leaves no other file.
[[nodiscard]] int replace_file(int folder, const std::string& name, std::span<const std::byte> bytes);

/// When a file was last stamped (its mtime).
[[nodiscard]] Stamp stamp_of(const struct stat& status);
/// Sets the stamp of an open file. False where the file system does not allow it.
bool set_stamp(int file, Stamp stamp);
/// Whether `stamp` is so far after `now` that the clock must have been set back, and the age of the file is
/// unknown. Up to an hour may be another machine's clock.
[[nodiscard]] bool is_ahead(Stamp stamp, Stamp now);
/// Whether `stamp` is `age` or more before `now`, or in the future.
[[nodiscard]] bool is_older(Stamp stamp, WallClock::duration age, Stamp now);

}  // namespace sparsekiln::cache
