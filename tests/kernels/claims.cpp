#include "tests/kernels/claims.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include <nlohmann/json.hpp>

namespace sparsekiln::test {
namespace {

using nlohmann::json;

/// Holds the lock of a file.
class Locked {
 public:
  explicit Locked(int file) : file_(file) {
    while (flock(file_, LOCK_EX) != 0)
      if (errno != EINTR)
        throw std::system_error(errno, std::generic_category(), "locking the file of claims");
  }
  ~Locked() { flock(file_, LOCK_UN); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  int file_;
};

std::string line_of(const json& document) {
  // Output of a test may be any bytes.
  return document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

Claims::Claims(const std::filesystem::path& path, std::chrono::system_clock::time_point until)
    : file_(open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666)), until_(until) {
  if (file_ < 0) throw std::system_error(errno, std::generic_category(), "opening " + path.string());
}

Claims::~Claims() { close(file_); }

void Claims::plan(const std::string& name, std::size_t parts) {
  const auto known = [&] {
    const auto place = planned_.find(name);
    return place != planned_.end() && place->second >= parts;
  };
  if (known()) return;
  const Locked locked(file_);
  read_on();
  if (!known()) append(line_of({{"planned", name}, {"parts", parts}}));
}

bool Claims::claim(const std::string& name, const std::string& what) {
  const auto now = std::chrono::system_clock::now();
  if (now >= until_ || taken_.contains(name)) return false;
  const Locked locked(file_);
  read_on();
  if (taken_.contains(name)) return false;
  taken_.insert(name);
  began_ = std::chrono::steady_clock::now();
  began_cpu_ = std::clock();
  append(line_of({{"begin", name},
                  {"what", what},
                  {"worker", getpid()},
                  {"at", std::chrono::duration<double>(now.time_since_epoch()).count()}}));
  return true;
}

void Claims::end(const std::string& name, const std::string& failure) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began_;
  const Locked locked(file_);
  append(line_of({{"end", name},
                  {"ok", failure.empty()},
                  {"failure", failure},
                  {"seconds", seconds.count()},
                  {"cpu_seconds", static_cast<double>(std::clock() - began_cpu_) / CLOCKS_PER_SEC},
                  {"worker", getpid()}}));
}

void Claims::read_on() {
  std::array<char, 1 << 16> buffer;
  for (;;) {
    // Not read(): an append moves the file's own position past what others wrote in the meantime.
    const ssize_t got = pread(file_, buffer.data(), buffer.size(), read_);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw std::system_error(errno, std::generic_category(), "reading the file of claims");
    if (got == 0) return;
    read_ += got;
    unread_.append(buffer.data(), static_cast<std::size_t>(got));
    std::size_t from = 0;
    for (std::size_t to; (to = unread_.find('\n', from)) != unread_.npos; from = to + 1) {
      const json line = json::parse(unread_.begin() + static_cast<std::ptrdiff_t>(from),
                                    unread_.begin() + static_cast<std::ptrdiff_t>(to), nullptr, false);
      if (!line.is_object()) continue;  // cut off by a process that was killed
      for (const char* const key : {"begin", "end"})
        if (line.contains(key) && line[key].is_string()) taken_.insert(line[key].get<std::string>());
      if (line.contains("planned")) planned_[line["planned"]] = line.at("parts");
    }
    unread_.erase(0, from);
  }
}

void Claims::append(const std::string& line) const {
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t put = write(file_, line.data() + done, line.size() - done);
    if (put < 0 && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "writing the file of claims");
    if (put > 0) done += static_cast<std::size_t>(put);
  }
}

}  // namespace sparsekiln::test
