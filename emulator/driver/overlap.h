#pragma once

#include <memory>
#include <vector>

#include "emulator/machine/footprint.h"
#include "emulator/machine/launch_request.h"

namespace sparsekiln::driver {

/// The launches of one stream that need not have ended when its next launch begins, if that one may overlap
/// them (CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).
///
/// A launch that may overlap begins when every block of its predecessor has let it or has ended, and
/// griddepcontrol.wait waits for the end of the predecessor, but for no launch before it. Those have ended by
/// then if the predecessor itself waited. The emulator demands this of each of its threads, although one that
/// waits would delay the end of the whole launch.
class OverlapChain {
 public:
  /// All that was launched has ended.
  void end();
  /// Completes a request, which is the next launch of the stream and runs before the next call of this.
  void add(emulator::LaunchRequest& request, bool overlaps);

 private:
  using Launches = std::vector<std::shared_ptr<const emulator::Footprint>>;

  std::shared_ptr<emulator::Footprint> last_;  ///< the launch before; null where all has ended
  Launches before_its_wait_;                   ///< which need not have ended when a thread of it runs …
  Launches after_its_wait_;                    ///< … that has not waited, and that has
};

}  // namespace sparsekiln::driver
