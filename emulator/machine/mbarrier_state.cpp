#include "emulator/machine/mbarrier_state.h"

#include "emulator/machine/memory.h"
#include "emulator/machine/report.h"

namespace sparsekiln::emulator {
namespace {

std::string plural(std::int64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

std::string describe_mbarrier(std::uint32_t offset, const Mbarrier& mbarrier) {
  return "mbarrier at " + hex(offset + kSharedBase) + ", whose phase " + std::to_string(mbarrier.phase) +
         " still needs " + plural(mbarrier.pending, "arrival") + " and " +
         plural(mbarrier.transactions, "byte");
}

}  // namespace sparsekiln::emulator
