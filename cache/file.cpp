#include "cache/file.h"

#include <cerrno>

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

namespace sparsekiln::cache {

namespace {

constexpr auto kSkew = std::chrono::hours(1);

/// A file that is removed again unless it was published.
class Temporary {
 public:
  Temporary(int folder, const std::string& name) : folder_(folder) {
    for (int attempt = 0; attempt < 8 && !file_.open(); ++attempt) {
      name_ = temporary_name(name);
      file_ = open_file(folder_, name_, kCreateFlags, kFileMode);
      if (!file_.open() && errno != EEXIST) break;
    }
    error_ = file_.open() ? 0 : errno;
    created_ = file_.open();
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (created_) ::unlinkat(folder_, name_.c_str(), 0);
  }

  /// 0, or the errno of the first thing that failed.
  [[nodiscard]] int write(std::span<const std::byte> bytes) {
    if (error_ != 0) return error_;
    if (const int error = write_all(file_.get(), bytes); error != 0) return error;
    return file_.close();
  }

  [[nodiscard]] int publish_as(const std::string& name) {
    if (::renameat(folder_, name_.c_str(), folder_, name.c_str()) != 0) return errno;
    created_ = false;
    return 0;
  }

 private:
  int folder_;
  std::string name_;
  Descriptor file_;
  int error_ = 0;
  bool created_ = false;
};

timespec to_timespec(Stamp stamp) {
  const auto since_epoch = stamp.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  return {.tv_sec = seconds.count(),
          .tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch - seconds).count()};
}

}  // namespace

std::string random_word() {
  std::uint64_t random = 0;
  // Random rather than the process id, which two machines that share a folder may both have. If two names are
  // the same, O_EXCL still keeps two writers apart.
  if (::getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
    random = static_cast<std::uint64_t>(::getpid());
  return fmt::format("{:016x}", random);
}

std::string temporary_name(std::string_view name) { return fmt::format("{}.{}.tmp", name, random_word()); }

int replace_file(int folder, const std::string& name, std::span<const std::byte> bytes) {
  Temporary temporary(folder, name);
  if (const int error = temporary.write(bytes); error != 0) return error;
  return temporary.publish_as(name);
}

Stamp stamp_of(const struct stat& status) {
  const auto since_epoch =
      std::chrono::seconds(status.st_mtim.tv_sec) + std::chrono::nanoseconds(status.st_mtim.tv_nsec);
  return Stamp(std::chrono::duration_cast<WallClock::duration>(since_epoch));
}

bool set_stamp(int file, Stamp stamp) {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, to_timespec(stamp)};
  return ::futimens(file, times) == 0;
}

bool is_ahead(Stamp stamp, Stamp now) { return stamp > now + kSkew; }

bool is_older(Stamp stamp, WallClock::duration age, Stamp now) {
  return stamp <= now - age || is_ahead(stamp, now);
}

}  // namespace sparsekiln::cache
