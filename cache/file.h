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

/// What stamps and ages of files are told in: the machine's own, which may be set back.
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
  /// Gives the descriptor up to the caller, who closes it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// How the store opens what is there already: never through a link, and never waiting for a pipe's other end.
extern const int kReadFlags;
/// How it makes what must not be there yet.
extern const int kCreateFlags;
/// Files of the store are their owner's alone.
inline constexpr mode_t kFileMode = 0600;

/// 64 random bits in hexadecimal; this process's id where the kernel has none yet.
[[nodiscard]] std::string random_word();
/// A name beside `name` that nobody else uses: `name`, 64 random bits, ".tmp".
[[nodiscard]] std::string temporary_name(std::string_view name);

/// Fills `bytes` from a file and cuts them to what there was. 0, or errno.
[[nodiscard]] int read_into(int file, std::vector<std::byte>& bytes);
/// Writes all of `bytes`. 0, or errno.
[[nodiscard]] int write_all(int file, std::span<const std::byte> bytes);
/// Makes `name` in an open folder hold exactly these bytes, at once for every reader: a temporary file beside
/// it, written and closed, takes its name. 0, or the errno of what failed first; leaves no other file behind.
[[nodiscard]] int replace_file(int folder, const std::string& name, std::span<const std::byte> bytes);

/// When a file was last stamped (its mtime).
[[nodiscard]] Stamp stamp_of(const struct stat& status);
/// Sets the stamp of an open file. False where the file system does not allow it.
bool set_stamp(int file, Stamp stamp);
/// Whether `stamp` is so far ahead of `now` that the clock must have been set back, and nobody knows how old
/// it is. Up to an hour is another machine's clock.
[[nodiscard]] bool is_ahead(Stamp stamp, Stamp now);
/// Whether `stamp` is `age` or more before `now`, or ahead of it.
[[nodiscard]] bool is_older(Stamp stamp, WallClock::duration age, Stamp now);

}  // namespace sparsekiln::cache
