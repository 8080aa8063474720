#include "compiler/layout_file/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

namespace sparsekiln::layout_file {

namespace {

namespace fs = std::filesystem;

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail(std::string_view verb, const fs::path& file, std::string_view why) {
  throw Error(ErrorKind::io, fmt::format("cannot {} '{}': {}", verb, printable(file.string()), why));
}

/// Owns an open file.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { static_cast<void>(close()); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int number() const { return number_; }
  /// Zero or the error number: a full disk may only show here.
  [[nodiscard]] int close() {
    const int number = std::exchange(number_, -1);
    return number < 0 || ::close(number) == 0 ? 0 : errno;
  }

 private:
  int number_;
};

/// A new file beside `target` that goes away unless it is published.
class Temporary {
 public:
  explicit Temporary(const fs::path& target) : target_(target), file_(create()) {}
  ~Temporary() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  void write(std::string_view bytes) {
    buffer_ += bytes;
    if (buffer_.size() >= kBufferBytes) flush();
  }

  void publish() {
    flush();
    // Without this, a machine that stops may be left with the new name and none of the bytes.
    if (::fsync(file_.number()) != 0 && errno != EINVAL && errno != EROFS)
      fail("write", target_, reason(errno));
    if (const int error = file_.close(); error != 0) fail("write", target_, reason(error));
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail("write", target_, reason(errno));
    path_.clear();
  }

 private:
  static constexpr std::size_t kBufferBytes = 1 << 16;

  /// Tries names until one is free, so that writers beside us, or what a killed one left, do no harm.
  int create() {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      path_ = target_.parent_path() /
              fmt::format(".{}.{}-{}.tmp", target_.filename().string().substr(0, 128), ::getpid(), attempt);
      const int number = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (number >= 0) return number;
      if (errno != EEXIST) break;
    }
    const int error = errno;
    path_.clear();
    fail("write", target_, reason(error));
  }

  void flush() {
    std::string_view rest = buffer_;
    while (!rest.empty()) {
      const auto written = ::write(file_.number(), rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write", target_, reason(errno));
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
    buffer_.clear();
  }

  const fs::path& target_;
  fs::path path_;
  Descriptor file_;
  std::string buffer_;
};

}  // namespace

std::string read_file(const fs::path& file) {
  // Without O_NONBLOCK, opening a pipe without a writer would block.
  const Descriptor descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.number() < 0) fail("read", file, reason(errno));
  struct stat status{};
  if (::fstat(descriptor.number(), &status) != 0) fail("read", file, reason(errno));
  if (S_ISDIR(status.st_mode)) fail("read", file, reason(EISDIR));
  if (!S_ISREG(status.st_mode)) fail("read", file, "it is no regular file; a copy of it in one can be read");
  const auto refuse_if_large = [&](std::size_t size) {
    if (size > kMaxFileBytes)
      fail("read", file,
           fmt::format("it has {} bytes, and {} at most are read; .smtx is the smallest form of a large grid",
                       size, kMaxFileBytes));
  };
  refuse_if_large(static_cast<std::size_t>(status.st_size));
  std::size_t size = 0;
  std::string bytes;
  try {
    // One byte more than the size said shows that the end is reached; a file may grow meanwhile.
    bytes.resize(static_cast<std::size_t>(status.st_size) + 1);
    for (;;) {
      if (size == bytes.size()) bytes.resize(2 * bytes.size());
      const auto got = ::read(descriptor.number(), bytes.data() + size, bytes.size() - size);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("read", file, reason(errno));
      if (got == 0) break;
      size += static_cast<std::size_t>(got);
      refuse_if_large(size);
    }
    bytes.resize(size);
    return bytes;
  } catch (const std::bad_alloc&) {
    fail("read", file,
         fmt::format("no memory for its {} bytes", std::max(size, static_cast<std::size_t>(status.st_size))));
  }
}

void replace_file(const fs::path& file, const std::function<void(const Sink&)>& write) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (fs::is_directory(status)) fail("write", file, reason(EISDIR));
  if (fs::exists(status) && !fs::is_regular_file(status)) fail("write", file, "it is no regular file");
  if (file.filename().empty()) fail("write", file, "the name of a file was expected");
  // Renaming would replace the link with the file.
  const fs::path target =
      fs::is_symlink(file, error) && fs::exists(status) ? fs::canonical(file, error) : file;
  if (target.empty()) fail("write", file, error.message());
  Temporary temporary(target);
  write([&](std::string_view bytes) { temporary.write(bytes); });
  temporary.publish();
}

}  // namespace sparsekiln::layout_file
