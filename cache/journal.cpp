#include "cache/journal.h"

#include <optional>
#include <span>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sparsekiln/error.h>

namespace sparsekiln::cache {
namespace {

constexpr const char* kEnding = ".journal";

/// Removes what a killed writer left of a line.
void end_on_a_line(int file) {
  struct stat status{};
  if (::fstat(file, &status) != 0) return;
  for (off_t size = status.st_size; size > 0; --size) {
    char last = 0;
    if (::pread(file, &last, 1, size - 1) != 1) return;
    if (last != '\n') continue;
    if (size != status.st_size && ::ftruncate(file, size) != 0) return;
    return;
  }
  if (status.st_size > 0 && ::ftruncate(file, 0) != 0) return;
}

}  // namespace

Journal::Journal(Folder folder, const std::string& name)
    : folder_(std::move(folder)), name_(name + kEnding) {}

std::vector<std::string> Journal::lines() const {
  std::vector<std::string> lines;
  std::optional<Folder::Found> found;
  try {
    found = folder_.read(name_);
  } catch (const Error&) {
    return lines;
  }
  if (!found) return lines;
  std::string_view text(reinterpret_cast<const char*>(found->bytes.data()), found->bytes.size());
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

void Journal::append(std::string_view line) {
  if (refused_) return;
  if (!file_.open()) {
    try {
      const Descriptor shard = folder_.open_shard(name_, true);
      file_ = open_file(shard.get(), name_, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, kFileMode);
    } catch (const Error&) {
    }
    struct stat status{};
    const bool usable = file_.open() && ::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                        status.st_uid == ::geteuid();
    if (!usable) {
      refused_ = true;
      return;
    }
    end_on_a_line(file_.get());
  }
  const std::string whole = std::string(line) + '\n';
  refused_ = write_all(file_.get(), std::as_bytes(std::span(whole))) != 0;
}

void Journal::remove() {
  file_ = Descriptor();
  try {
    folder_.remove(name_);
  } catch (const Error&) {  // the journal repeats what the entry says, and is removed some day
  }
}

}  // namespace sparsekiln::cache
