#pragma once

#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <unistd.h>

namespace sparsekiln {

/// Equal requests at the same time do the work once: the first caller does it, the others wait for its result
/// (or its exception). A process that was forked waits for no thread of its parent.
template <typename Key, typename Value, typename Hash = std::hash<Key>>
class SingleFlight {
 public:
  /// The result of `work()`, and whether this caller was the one that did it.
  template <typename Work>
  std::pair<Value, bool> run(const Key& key, Work work) {
    std::promise<Value> promise;
    {
      std::unique_lock lock(mutex_);
      const auto flying = flights_.find(key);
      if (flying != flights_.end() && flying->second.process == ::getpid()) {
        const std::shared_future<Value> result = flying->second.result;
        lock.unlock();
        return {result.get(), false};
      }
      flights_.insert_or_assign(key, Flight{promise.get_future().share(), ::getpid()});
    }
    try {
      Value value = work();
      land(key);
      promise.set_value(value);
      return {std::move(value), true};
    } catch (...) {
      land(key);
      promise.set_exception(std::current_exception());
      throw;
    }
  }

 private:
  struct Flight {
    std::shared_future<Value> result;
    pid_t process;
  };

  void land(const Key& key) {
    const std::lock_guard lock(mutex_);
    flights_.erase(key);
  }

  std::mutex mutex_;
  std::unordered_map<Key, Flight, Hash> flights_;
};

}  // namespace sparsekiln
