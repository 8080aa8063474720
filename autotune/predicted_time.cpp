#include "autotune/predicted_time.h"

namespace sparsekiln {

std::string_view name(Bound bound) {
  switch (bound) {
    case Bound::memory:
      return "memory";
    case Bound::cache:
      return "cache";
    case Bound::arithmetic:
      return "arithmetic";
    case Bound::instructions:
      return "instructions";
    case Bound::latency:
      return "latency";
  }
  return "";
}

}  // namespace sparsekiln
