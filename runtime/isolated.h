#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sparsekiln {

/// The result of work that was done in a process of its own.
struct Isolated {
  enum class End : std::uint8_t {
    done,
    threw,    ///< `message` is what
    crashed,  ///< `message` names the signal, or the exit status
    late,     ///< ended by its time limit
    stopped,  ///< ended, or never begun, because `stop` said so, or there was no process for it
  };
  End end = End::stopped;
  std::string message;
  std::vector<std::byte> bytes;  ///< of `done`: what it returned
  double ms = 0;                 ///< wall time
};

/// Calls work(0) … work(count - 1), each in a child process forked off this one, at most `at_once` at a time,
/// in this order; `done` gets what came of each, in the order in which they end, in this process. A child
/// that takes longer than `limit` is killed; so are all once `stop` says so (asked every few milliseconds).
/// A child that fails does not stop this process.
///
/// A child has one thread, memory as it was, and is killed with its parent. It must not use a device that the
/// parent has opened. Locks that other threads hold at the moment of the fork stay held in the child: such
/// work hangs, and its time limit ends it.
void run_isolated(std::size_t count, std::size_t at_once, std::chrono::milliseconds limit,
                  const std::function<std::vector<std::byte>(std::size_t)>& work,
                  const std::function<void(std::size_t, Isolated)>& done, const std::function<bool()>& stop);

}  // namespace sparsekiln
