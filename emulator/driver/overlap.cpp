#include "emulator/driver/overlap.h"

#include <utility>

namespace sparsekiln::driver {
namespace {

/// Launches that are remembered: more only where as many in a row do not wait. It is a bound, beyond which a
/// report may be missed.
constexpr std::size_t kMostLaunches = 8;

}  // namespace

void OverlapChain::end() { *this = {}; }

void OverlapChain::add(emulator::LaunchRequest& request, bool overlaps) {
  Launches before;
  Launches after;
  if (overlaps && last_ != nullptr) {
    before = last_->may_trigger_early() ? before_its_wait_ : after_its_wait_;
    after = last_->may_end_early() ? before_its_wait_ : after_its_wait_;
    before.push_back(last_);
    if (before.size() > kMostLaunches) before.erase(before.begin());
  }
  last_ = std::make_shared<emulator::Footprint>(request.program->function.name);
  before_its_wait_ = std::move(before);
  after_its_wait_ = std::move(after);
  request.footprint = last_.get();
  for (const auto& launch : before_its_wait_) request.unfinished_before_wait.push_back(launch.get());
  for (const auto& launch : after_its_wait_) request.unfinished_after_wait.push_back(launch.get());
}

}  // namespace sparsekiln::driver
