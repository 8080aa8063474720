#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace sparsekiln::driver {

/// A handle that no other object ever had or will have, so that a stale handle, or one of another kind, is
/// recognized. It is not an address and must not be dereferenced.
[[nodiscard]] inline std::uint64_t next_handle() {
  static std::atomic<std::uint64_t> next = 0x0e00'0000'0000'0010;
  return next.fetch_add(16);
}

/// Objects of one kind by the handles that callers have of them. Thread-safe; an object lives as long as it
/// is in use.
template <class Handle, class T>
class Registry {
 public:
  Handle add(std::shared_ptr<T> object) {
    const auto handle = reinterpret_cast<Handle>(next_handle());
    add(handle, std::move(object));
    return handle;
  }
  void add(Handle handle, std::shared_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    objects_[handle] = std::move(object);
  }

  /// Null if the handle is not, or no longer, one of this registry.
  [[nodiscard]] std::shared_ptr<T> find(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  /// The object that was there; null where there was none.
  std::shared_ptr<T> remove(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  /// Takes out all objects that `belongs` is true for.
  template <class Belongs>
  std::vector<std::shared_ptr<T>> remove_if(Belongs belongs) {
    std::vector<std::shared_ptr<T>> removed;
    const std::lock_guard lock(mutex_);
    for (auto at = objects_.begin(); at != objects_.end();) {
      if (!belongs(*at->second)) {
        ++at;
        continue;
      }
      removed.push_back(std::move(at->second));
      at = objects_.erase(at);
    }
    return removed;
  }

  [[nodiscard]] std::vector<std::shared_ptr<T>> all() const {
    std::vector<std::shared_ptr<T>> objects;
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, object] : objects_) objects.push_back(object);
    return objects;
  }

  /// Calls use(object) for each; none can be added or removed meanwhile.
  template <class Use>
  void each(Use use) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, object] : objects_) use(*object);
  }

  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return objects_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::map<Handle, std::shared_ptr<T>> objects_;
};

}  // namespace sparsekiln::driver
