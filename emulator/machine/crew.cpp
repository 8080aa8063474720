#include "emulator/machine/crew.h"

#include <system_error>

namespace sparsekiln::emulator {

Crew::~Crew() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Crew::all(const std::function<void(unsigned)>& work) {
  try {
    while (threads_.size() + 1 < size_)
      threads_.emplace_back([this, member = static_cast<unsigned>(threads_.size() + 1)] { serve(member); });
  } catch (const std::system_error&) {  // the host has no more threads than these
    size_ = static_cast<unsigned>(threads_.size() + 1);
  }
  {
    const std::scoped_lock lock(mutex_);
    work_ = &work;
    busy_ = static_cast<unsigned>(threads_.size());
    ++round_;
  }
  begin_.notify_all();
  work(0);
  std::unique_lock lock(mutex_);
  end_.wait(lock, [&] { return busy_ == 0; });
  work_ = nullptr;
}

void Crew::serve(unsigned member) {
  std::uint64_t seen = 0;
  while (true) {
    const std::function<void(unsigned)>* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      begin_.wait(lock, [&] { return over_ || round_ != seen; });
      if (over_) return;
      seen = round_;
      work = work_;
    }
    (*work)(member);
    const std::scoped_lock lock(mutex_);
    if (--busy_ == 0) end_.notify_one();
  }
}

}  // namespace sparsekiln::emulator
