#pragma once

#include <cstddef>
#include <functional>

namespace sparsekiln {

/// Calls work(0), work(1) … once each, on as many threads as are asked for, the calling one among them with
/// 0, and waits for all. Where the system has no more threads there are fewer, so work that all of them share
/// must not count on their number. The first exception that a call throws comes out when all have ended.
void in_parallel(std::size_t threads, const std::function<void(std::size_t)>& work);

}  // namespace sparsekiln
