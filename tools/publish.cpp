#include "tools/publish.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "system/file.h"

namespace sparsekiln::tools {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw Error(ErrorKind::io, fmt::format("cannot write '{}': {}", printable(path.string()), why));
}

/// A folder that goes, with all in it, unless it was renamed.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& beside, const fs::path& shown) {
    std::string pattern = (beside / ".sparsekiln-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) fail(shown, std::strerror(errno));
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void write(const fs::path& path, std::span<const std::byte> bytes, const fs::path& shown) {
  Descriptor file = open_file(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (!file.open()) fail(shown, std::strerror(errno));
  if (const int error = write_all(file.get(), bytes); error != 0) fail(shown, std::strerror(error));
  if (const int error = file.close(); error != 0) fail(shown, std::strerror(error));
}

void rename_to(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail(to, error.message());
}

/// The topmost of the folders that have to be made so that `folder` exists; empty where it does.
fs::path make_folders(const fs::path& folder) {
  fs::path first;
  for (fs::path at = folder; !at.empty() && !fs::exists(at); at = at.parent_path()) first = at;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder)) {
    std::error_code ignored;
    if (!first.empty()) fs::remove_all(first, ignored);
    fail(folder, error ? error.message() : "it is there and no folder");
  }
  return first;
}

/// Moves every file from one folder into another. What cannot be undone (a file that was replaced) is only
/// begun when every name is known to be free or a plain file.
void move_files(const fs::path& from, const fs::path& to, const std::vector<NamedBytes>& files) {
  for (const NamedBytes& file : files)
    if (fs::is_directory(to / file.name)) fail(to / file.name, "a folder has this name");
  for (const NamedBytes& file : files) rename_to(from / file.name, to / file.name);
}

}  // namespace

NamedBytes named(std::string name, std::string_view text) {
  return named(std::move(name), std::as_bytes(std::span(text.data(), text.size())));
}
NamedBytes named(std::string name, std::span<const std::byte> bytes) {
  return {std::move(name), {bytes.begin(), bytes.end()}};
}

void publish_folder(const fs::path& folder, const std::vector<NamedBytes>& files) {
  const fs::path made = make_folders(folder);
  try {
    const TemporaryFolder temporary(folder, folder);
    for (const NamedBytes& file : files) write(temporary.path() / file.name, file.bytes, folder / file.name);
    move_files(temporary.path(), folder, files);
  } catch (...) {
    std::error_code ignored;
    if (!made.empty()) fs::remove_all(made, ignored);
    throw;
  }
}

void publish_folder(const fs::path& folder, const std::vector<NamedBytes>& files, Answer& answer) {
  publish_folder(folder, files);
  answer.json["files"] = Json::array();
  for (const NamedBytes& file : files) {
    const std::string path = (folder / file.name).string();
    answer.json["files"].push_back(path);
    answer.text += fmt::format("wrote {}\n", printable(path));
  }
}

}  // namespace sparsekiln::tools
