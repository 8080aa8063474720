#include "emulator/machine/counters.h"

namespace sparsekiln::emulator {

LineCounters& LineCounters::operator+=(const LineCounters& other) {
  executed += other.executed;
  global_requests += other.global_requests;
  global_sectors += other.global_sectors;
  global_bytes += other.global_bytes;
  shared_wavefronts += other.shared_wavefronts;
  shared_ideal += other.shared_ideal;
  tensor_operations += other.tensor_operations;
  divergent += other.divergent;
  return *this;
}

}  // namespace sparsekiln::emulator
