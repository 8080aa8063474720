#include "emulator/machine/pending_copies.h"

namespace sparsekiln::emulator {

void WarpCopies::tidy() {
  while (first < pending.size() && pending[first].lanes == 0) ++first;
  constexpr std::size_t kMostDone = 64;
  if (first < kMostDone && first < pending.size()) return;
  pending.erase(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(first));
  first = 0;
}

}  // namespace sparsekiln::emulator
