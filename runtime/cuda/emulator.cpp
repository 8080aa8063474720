#include "runtime/cuda/emulator.h"

#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

namespace sparsekiln::cuda {
std::shared_ptr<const Context> open_emulated(int compute_capability) {
  const std::shared_ptr<const Driver> driver = Driver::find(DriverKind::emulator);
  int count = 0;
  driver->check(driver->api().device_get_count(&count), "counting the emulated devices");
  std::string known;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    const int capability = device_info(*driver, ordinal).compute_capability;
    if (capability == compute_capability) return Context::open(ordinal, DriverKind::emulator);
    known += fmt::format("{}sm_{}", known.empty() ? "" : ", ", capability);
  }
  throw Error(ErrorKind::driver, fmt::format("the emulator has no device of architecture sm_{}: it has {}",
                                             compute_capability, known));
}

Emulator::Emulator() : driver_(Driver::find(DriverKind::emulator)) {
  const auto find = [&](auto& function, const char* name, int version) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(driver_->find_symbol(name, version));
    if (function == nullptr)
      throw Error(ErrorKind::driver, fmt::format("{} has no {}: it is another emulator, or an older one",
                                                 printable(driver_->path().string()), name));
  };
  constexpr int kControl = 1000;
  find(set_seed_, "emulatorSetSeed", kControl);
  find(seed_, "emulatorSeed", kControl);
  find(set_checks_, "emulatorSetChecks", kControl);
  find(checks_, "emulatorChecks", kControl);
  find(set_threads_, "emulatorSetThreads", kControl);
  find(last_report_, "emulatorLastReport", kControl);
  find(reset_counters_, "emulatorResetCounters", kControl);
  find(counters_, "emulatorCounters", kControl);
  find(fail_call_, "emulatorFailCall", kControl);
  find(held_, "emulatorHeld", kControl);
  find(primary_ctx_reset_, "cuDevicePrimaryCtxReset", 11000);
}

std::vector<CountedLine> Emulator::counters() const {
  std::vector<CountedLine> lines;
  const auto keep = [](const EmulatorLine* line, void* with) {
    CountedLine kept;
    kept.kernel = line->kernel;
    kept.ptx_line = line->ptx_line;
    kept.instruction = line->instruction;
    kept.source_file = line->source_file;
    kept.source_line = line->source_line;
    kept.kind = line->kind;
    kept.executed = line->executed;
    kept.global_requests = line->global_requests;
    kept.global_sectors = line->global_sectors;
    kept.global_bytes = line->global_bytes;
    kept.shared_wavefronts = line->shared_wavefronts;
    kept.shared_ideal = line->shared_ideal;
    kept.tensor_operations = line->tensor_operations;
    kept.divergent = line->divergent;
    static_cast<std::vector<CountedLine>*>(with)->push_back(std::move(kept));
  };
  counters_(keep, &lines);
  return lines;
}

void Emulator::reset_device(int ordinal) const {
  CUdevice device = 0;
  driver_->check(driver_->api().device_get(&device, ordinal), "opening an emulated device");
  driver_->check(primary_ctx_reset_(device), "resetting an emulated device");
}

}  // namespace sparsekiln::cuda
