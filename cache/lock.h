#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cache/folder.h"

namespace sparsekiln::cache {

/// Who holds a lock, as its file says.
struct Holder {
  /// Kernel boot and namespace of process ids: only who shares both can judge the process.
  std::string host;
  std::int64_t process = 0;
  std::uint64_t started = 0;  ///< clock ticks from boot to the process's start; tells reused ids apart
  std::string mark;           ///< random: each lock's own

  /// This process, with a new mark.
  [[nodiscard]] static Holder self();
  /// What a lock's file holds: one line.
  [[nodiscard]] std::string text() const;
  /// The inverse: nothing unless it is exactly what text() writes.
  [[nodiscard]] static std::optional<Holder> parse(std::string_view text);
};

/// What can be said of a holder's process from here.
enum class Fate : std::uint8_t {
  alive,
  gone,     ///< no such process on this host, or only what its parent has not collected, or a reused number
  unknown,  ///< it is on another host, or the system does not tell
};
[[nodiscard]] Fate fate_of(const Holder& holder);

/// For how long a waiter waits, on its own monotonic clock.
struct Patience {
  std::chrono::milliseconds holder{60'000};  ///< for a holder whose fate is unknown, and in all
  std::chrono::milliseconds blank{1'000};    ///< for a holder to write its name into the lock it has made
};

/// The right to make what a key names, while others wait for it. Nothing depends on it but time: a lock that
/// cannot be had is done without, and two who believe to have the same one make the same thing twice.
///
/// It is a file made with O_EXCL, which file systems over a network have, too, where flock does not work or
/// stays on one machine.
class KeyLock {
 public:
  /// Takes the lock `name`, taking it over from a holder that is gone or out of time. Returns without it when
  /// `arrived` says that what it is for is there (asked now and then while it waits; what it throws passes),
  /// when the time is over, and when the folder allows no lock.
  [[nodiscard]] static KeyLock acquire(const Folder& folder, const std::string& name,
                                       const Patience& patience, const std::function<bool()>& arrived);
  KeyLock(KeyLock&& other) noexcept;
  KeyLock& operator=(KeyLock&&) = delete;
  /// Removes the lock unless it is someone else's by now.
  ~KeyLock();

  [[nodiscard]] bool held() const { return !text_.empty(); }

 private:
  KeyLock(const Folder& folder, std::string name, std::string text)
      : folder_(&folder), name_(std::move(name)), text_(std::move(text)) {}

  const Folder* folder_;
  std::string name_;
  std::string text_;  ///< of the file while it is held; else empty
};

}  // namespace sparsekiln::cache
