#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cache/folder.h"

namespace sparsekiln::cache {

/// The holder of a lock, as its file says.
struct Holder {
  /// Kernel boot and namespace of process ids: only a process with the same two can examine the holder's
  /// process.
  std::string host;
  std::int64_t process = 0;
  std::uint64_t started = 0;  ///< clock ticks from boot to the process's start; tells reused ids apart
  std::string mark;           ///< random and different for each lock

  /// This process, with a new mark.
  [[nodiscard]] static Holder self();
  /// The content of a lock's file: one line.
  [[nodiscard]] std::string text() const;
  /// The inverse of text(): empty unless it is exactly what text() writes.
  [[nodiscard]] static std::optional<Holder> parse(std::string_view text);
};

/// The state of a holder's process, as far as it is known from here.
enum class Fate : std::uint8_t {
  alive,
  /// there is no such process on this host, or its parent has not collected it, or the number is reused
  gone,
  unknown,  ///< it is on another host, or the system does not tell
};
[[nodiscard]] Fate fate_of(const Holder& holder);

/// How long a waiter waits, on its own monotonic clock.
struct Patience {
  std::chrono::milliseconds holder{60'000};  ///< for a holder of unknown state, and in total
  /// for a holder to write its name into the lock that it has made
  std::chrono::milliseconds blank{1'000};
};

/// The right to make what a key names, while others wait for it. It only saves time: if a lock cannot be
/// created, the caller continues without it, and two that both seem to have the lock make the same thing
/// twice.
///
/// It is a file made with O_EXCL, which also works on network file systems, where flock fails or is limited
/// to one machine.
class KeyLock {
 public:
  /// Takes the lock `name`, also from a holder that is gone or out of time. Returns without the lock when
  /// `arrived` says that the result exists (it is called now and then while waiting; what it throws is passed
  /// on), when the time is over, or if the folder allows no lock.
  [[nodiscard]] static KeyLock acquire(const Folder& folder, const std::string& name,
                                       const Patience& patience, const std::function<bool()>& arrived);
  KeyLock(KeyLock&& other) noexcept;
  KeyLock& operator=(KeyLock&&) = delete;
  /// Removes the lock unless it belongs to someone else by now.
  ~KeyLock();

  [[nodiscard]] bool held() const { return !text_.empty(); }

 private:
  KeyLock(const Folder& folder, std::string name, std::string text)
      : folder_(&folder), name_(std::move(name)), text_(std::move(text)) {}

  const Folder* folder_;
  std::string name_;
  std::string text_;  ///< the file's content while the lock is held; otherwise empty
};

}  // namespace sparsekiln::cache
