#include "cache/lock.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fstream>
#include <span>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sparsekiln/error.h>

namespace sparsekiln::cache {

// The file of a lock, version 1: one line of text, whose words are separated by single blanks.
//
//  lock    := "sparsekiln-lock-1" host process started mark '\n'
//  host    := boot id '/' inode of the namespace of process ids
//  process := process id, in decimal
//  started := field 22 of /proc/PID/stat, in decimal
//  mark    := 16 hexadecimal digits
//
// Other content says nothing about the holder, which is then treated as unknown.

namespace {

using Monotonic = std::chrono::steady_clock;

constexpr std::string_view kMagic = "sparsekiln-lock-1";
constexpr std::size_t kLongestLock = 256;
constexpr std::chrono::milliseconds kFirstPause{1}, kLongestPause{50};

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// Boot and process-id namespace: containers of one machine share only the first.
std::string this_host() {
  struct stat space{};
  const bool known = ::stat("/proc/self/ns/pid", &space) == 0;
  return fmt::format("{}/{}", first_line("/proc/sys/kernel/random/boot_id"),
                     known ? static_cast<std::uint64_t>(space.st_ino) : 0u);
}

/// What /proc says about a process that this one can see.
struct Process {
  char state = '?';
  std::uint64_t started = 0;
};

std::optional<Process> look_up(std::int64_t process) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", process).c_str());
  // The second field is the program's name in brackets, and may contain brackets and blanks: continue after
  // it.
  const std::size_t behind_name = line.rfind(')');
  if (behind_name == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(behind_name + 1));
  Process found;
  fields >> found.state;  // field 3
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> found.started;
  return fields ? std::optional(found) : std::nullopt;
}

template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

/// The file of a lock as a waiter reads it.
struct Seen {
  std::string text;
  std::uintmax_t device = 0;
  std::uintmax_t number = 0;

  friend bool operator==(const Seen&, const Seen&) = default;
};

/// Empty if there is no such file.
std::optional<Seen> look(int folder, const std::string& file) {
  struct stat status{};
  if (::fstatat(folder, file.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  Seen seen{{}, status.st_dev, status.st_ino};
  const Descriptor opened = open_file(folder, file, kReadFlags);
  std::vector<std::byte> bytes(kLongestLock);
  if (opened.open() && read_into(opened.get(), bytes) == 0)
    seen.text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return seen;
}

enum class Attempt { taken, busy, impossible };

Attempt create(int folder, const std::string& file, const std::string& text) {
  Descriptor lock = open_file(folder, file, kCreateFlags, kFileMode);
  if (!lock.open()) return errno == EEXIST ? Attempt::busy : Attempt::impossible;
  const int error = write_all(lock.get(), std::as_bytes(std::span(text.data(), text.size())));
  if (error == 0) return Attempt::taken;
  ::unlinkat(folder, file.c_str(), 0);
  return Attempt::impossible;
}

/// Removes the lock that was examined, and no other: it is first renamed to a name of this caller's own,
/// where no other process can change it. Another waiter may have taken over meanwhile; its lock is put back.
/// False if the folder does not allow it.
bool remove_judged(int folder, const std::string& file, const Seen& judged) {
  const std::string aside = temporary_name(file);
  if (::renameat(folder, file.c_str(), folder, aside.c_str()) != 0) return errno == ENOENT;
  if (look(folder, aside) != judged) ::linkat(folder, aside.c_str(), folder, file.c_str(), 0);
  ::unlinkat(folder, aside.c_str(), 0);
  return true;
}

/// What a waiter knows about the lock that it waits for.
class Watch {
 public:
  Watch(const Patience& patience, Monotonic::time_point began) : patience_(patience), seen_since_(began) {}

  /// Whether the lock's holder has lost its claim to it.
  bool abandoned(const Seen& seen, Monotonic::time_point now) {
    if (!seen_ || !(*seen_ == seen)) {
      if (seen_) seen_since_ = now;  // otherwise it may have existed before the waiting began
      seen_ = seen;
      holder_ = Holder::parse(seen.text);
    }
    const Fate fate = holder_ ? fate_of(*holder_) : Fate::unknown;
    const auto limit = holder_ ? patience_.holder : patience_.blank;
    return fate == Fate::gone || (fate == Fate::unknown && now - seen_since_ >= limit);
  }

 private:
  Patience patience_;
  std::optional<Seen> seen_;
  std::optional<Holder> holder_;  ///< what the file says, if it says anything
  Monotonic::time_point seen_since_;
};

}  // namespace

Holder Holder::self() {
  const std::int64_t process = ::getpid();
  const auto found = look_up(process);
  return {this_host(), process, found ? found->started : 0, random_word()};
}

std::string Holder::text() const {
  return fmt::format("{} {} {} {} {}\n", kMagic, host, process, started, mark);
}

std::optional<Holder> Holder::parse(std::string_view text) {
  std::array<std::string_view, 5> words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t end = text.find(i + 1 < words.size() ? ' ' : '\n');
    if (end == std::string_view::npos) return std::nullopt;
    words[i] = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  Holder holder{std::string(words[1]), 0, 0, std::string(words[4])};
  const bool sound = text.empty() && words[0] == kMagic && !words[1].empty() && !words[4].empty() &&
                     parse_number(words[2], holder.process) && holder.process > 0 &&
                     parse_number(words[3], holder.started);
  return sound ? std::optional(std::move(holder)) : std::nullopt;
}

Fate fate_of(const Holder& holder) {
  if (holder.host != this_host()) return Fate::unknown;
  if (::kill(static_cast<pid_t>(holder.process), 0) != 0 && errno == ESRCH) return Fate::gone;
  const auto found = look_up(holder.process);
  if (!found) return Fate::unknown;  // /proc hides it
  const bool ended = found->state == 'Z' || found->state == 'X';
  const bool another = holder.started != 0 && found->started != holder.started;
  return ended || another ? Fate::gone : Fate::alive;
}

KeyLock KeyLock::acquire(const Folder& folder, const std::string& name, const Patience& patience,
                         const std::function<bool()>& arrived) {
  const Monotonic::time_point began = Monotonic::now();
  const std::string text = Holder::self().text();
  Watch watch(patience, began);
  auto pause = kFirstPause;
  bool took_over = false;
  for (;;) {
    try {
      const Descriptor shard = folder.open_shard(name, true);
      const Attempt attempt = create(shard.get(), name, text);
      if (attempt == Attempt::taken) return {folder, name, text};
      if (attempt == Attempt::impossible) return {folder, name, {}};
      const auto seen = look(shard.get(), name);
      const bool taken_over =
          seen && watch.abandoned(*seen, Monotonic::now()) && remove_judged(shard.get(), name, *seen);
      // Only once, since a folder may return this forever; otherwise the next attempt may succeed.
      if (taken_over && !std::exchange(took_over, true)) continue;
    } catch (const Error&) {
      return {folder, name, {}};
    }
    if (arrived() || Monotonic::now() - began >= patience.holder) return {folder, name, {}};
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

KeyLock::KeyLock(KeyLock&& other) noexcept
    : folder_(other.folder_), name_(std::move(other.name_)), text_(std::exchange(other.text_, {})) {}

KeyLock::~KeyLock() {
  if (!held()) return;
  try {
    const Descriptor shard = folder_->open_shard(name_, false);
    if (!shard.open()) return;
    const auto seen = look(shard.get(), name_);
    if (seen && seen->text == text_) ::unlinkat(shard.get(), name_.c_str(), 0);
  } catch (const Error&) {  // the folder is no longer ours: nothing here can or should remove the file
  }
}

}  // namespace sparsekiln::cache
