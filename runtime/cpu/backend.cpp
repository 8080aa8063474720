#include "runtime/backend.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include <sparsekiln/threads.h>

#include "runtime/cpu/device.h"
#include "runtime/cpu/machine_peak.h"

namespace sparsekiln::cpu {
namespace {

std::shared_ptr<const Device> open(std::string_view) { return open_device(); }

std::shared_ptr<const Device> at_hand(const Target& target, std::string_view) {
  return target.arch == Target::host().arch ? open_device() : nullptr;
}

/// The most that this machine reached so far.
MachinePeak measured_peak(const Target& target, double bytes, bool again) {
  static std::mutex mutex;
  static std::map<std::tuple<std::string, std::int32_t, int>, MachinePeak> peaks;
  const std::lock_guard lock(mutex);
  const int doublings = static_cast<int>(std::log2(std::max(bytes, 1.0)));
  MachinePeak& peak = peaks[{target.to_string(), std::min(target.workers, threads()), doublings}];
  if (peak.measured && !again) return peak;
  const MeasuredPeak now = measure_peak(target, static_cast<std::int64_t>(bytes));
  peak = {std::max(peak.gflops, now.gflops), std::max(peak.gbytes, now.gbytes), true};
  return peak;
}

}  // namespace

extern const DeviceBackend kDevices;
constexpr DeviceBackend kDevices{.kind = Target::Kind::cpu,
                                 .names = "cpu",
                                 .is_device = [](std::string_view text) { return text == "cpu"; },
                                 .available = [] { return true; },
                                 .open = open,
                                 .target_of = [](std::string_view) { return Target::host(); },
                                 .at_hand = at_hand,
                                 .records_of_architecture = true,
                                 .measured_peak = measured_peak};

}  // namespace sparsekiln::cpu
