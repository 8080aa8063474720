#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <set>
#include <string>

namespace sparsekiln::test {

/// What several processes that run the suite together have claimed and done: a file of JSON lines, to which
/// all append under a lock.
///
///  {"planned": NAME, "parts": number}      0: not yet known
///  {"begin": NAME, "what": TEXT, "worker": process id, "at": seconds since 1970}
///  {"end": NAME, "ok": bool, "failure": TEXT, "seconds": number, "cpu_seconds": number, "worker": id}
///
/// A name in a line is claimed. The program that starts the processes (tests/gpu/workers.py) may write lines
/// as well, for a process that crashed or hung.
class Claims {
 public:
  /// Opens the file `path`, which is created if it does not exist. After `until` nothing more can be claimed.
  /// Throws std::system_error if the file cannot be opened.
  Claims(const std::filesystem::path& path, std::chrono::system_clock::time_point until);
  ~Claims();
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;

  /// Writes once that there is a test case with so many parts.
  void plan(const std::string& name, std::size_t parts);
  /// Claims `name`. True if this process is to run it: no other had claimed it, and there is time.
  [[nodiscard]] bool claim(const std::string& name, const std::string& what);
  /// Writes the result: `failure` is empty if all is right.
  void end(const std::string& name, const std::string& failure);

 private:
  void read_on();
  void append(const std::string& line) const;

  int file_;
  std::chrono::system_clock::time_point until_;
  std::chrono::steady_clock::time_point began_;  ///< the last claim
  std::int64_t read_ = 0;                        ///< bytes of the file
  std::clock_t began_cpu_ = 0;                   ///< processor time that this process had used at that time
  std::string unread_;                           ///< the beginning of a line that was not yet complete
  std::set<std::string> taken_;
  std::map<std::string, std::size_t> planned_;  ///< parts
};

}  // namespace sparsekiln::test
