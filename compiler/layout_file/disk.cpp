#include "compiler/layout_file/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <span>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "system/file.h"

namespace sparsekiln::layout_file {

namespace {

namespace fs = std::filesystem;

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail(std::string_view verb, const fs::path& file, std::string_view why) {
  throw Error(ErrorKind::io, fmt::format("cannot {} '{}': {}", verb, printable(file.string()), why));
}

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
    if (::fsync(file_.get()) != 0 && errno != EINVAL && errno != EROFS) fail("write", target_, reason(errno));
    if (const int error = file_.close(); error != 0) fail("write", target_, reason(error));
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail("write", target_, reason(errno));
    path_.clear();
  }

 private:
  static constexpr std::size_t kBufferBytes = 1 << 16;

  /// Tries names until one is free, so that writers beside us, or what a killed one left, do no harm.
  Descriptor create() {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      path_ = target_.parent_path() /
              fmt::format(".{}.{}-{}.tmp", target_.filename().string().substr(0, 128), ::getpid(), attempt);
      Descriptor file = open_file(path_, O_WRONLY | O_CREAT | O_EXCL, 0666);
      if (file.open()) return file;
      if (errno != EEXIST) break;
    }
    const int error = errno;
    path_.clear();
    fail("write", target_, reason(error));
  }

  void flush() {
    const int error = write_all(file_.get(), std::as_bytes(std::span(buffer_)));
    if (error != 0) fail("write", target_, reason(error));
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
  const Descriptor descriptor = open_file(file, O_RDONLY | O_NONBLOCK);
  if (!descriptor.open()) fail("read", file, reason(errno));
  struct stat status{};
  if (::fstat(descriptor.get(), &status) != 0) fail("read", file, reason(errno));
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
      const auto got = ::read(descriptor.get(), bytes.data() + size, bytes.size() - size);
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
