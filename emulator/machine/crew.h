#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sparsekiln::emulator {

/// The host threads of one launch, which start with the first work that is large enough for them.
class Crew {
 public:
  explicit Crew(unsigned threads) : size_(threads) {}
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  [[nodiscard]] unsigned size() const { return size_; }  ///< fewer than asked for, where the host has no more
  /// Calls work(member) once on each of the `size()` threads, the calling one among them as member 0, and
  /// waits for all. `work` must not throw.
  void all(const std::function<void(unsigned member)>& work);

 private:
  void serve(unsigned member);

  unsigned size_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable begin_;
  std::condition_variable end_;
  const std::function<void(unsigned)>* work_ = nullptr;
  std::uint64_t round_ = 0;
  unsigned busy_ = 0;
  bool over_ = false;
};

}  // namespace sparsekiln::emulator
