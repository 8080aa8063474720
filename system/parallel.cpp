#include "system/parallel.h"

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace sparsekiln {

void in_parallel(std::size_t threads, const std::function<void(std::size_t)>& work) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto call = [&](std::size_t number) {
    try {
      work(number);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (std::size_t number = 1; number < threads; ++number) others.emplace_back(call, number);
    } catch (const std::system_error&) {  // those that there are do the work
    }
    call(0);
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace sparsekiln
