#pragma once

#include <memory>
#include <string_view>

#include <sparsekiln/target.h>

#include "autotune/record.h"
#include "compiler/toolchain.h"
#include "runtime/device.h"

namespace sparsekiln {

/// Finds and opens the devices of a kind of target. Each is the constant `kDevices` of its namespace and
/// folder (runtime/cuda/backend.cpp).
///
/// `name` is what was written of a device: a text of which `is_device` holds, or nothing for the current one.
struct DeviceBackend {
  Target::Kind kind;
  std::string_view names;  ///< of its devices, for messages
  bool (*is_device)(std::string_view text);
  /// Which of these devices are an emulator's. Null: none.
  bool (*is_emulated)(std::string_view text) = nullptr;
  /// Whether "auto" takes a device of this backend.
  bool (*available)();
  /// Throws `driver` where there is none, `invalid_argument` for a name that says no device.
  std::shared_ptr<const Device> (*open)(std::string_view name);
  /// What code for a device is compiled for; a name that says so is not looked for.
  Target (*target_of)(std::string_view name);
  /// The device for a target, asked for as Options::target; null where this machine has none. Throws as
  /// `open` does.
  std::shared_ptr<const Device> (*at_hand)(const Target&, std::string_view asked);
  /// Whether a target that is named by its architecture means this machine where it may: its tuning records
  /// hold. Others must name a device.
  bool records_of_architecture;
  /// See context_for. Null: kernels have none.
  const void* (*context)(std::string_view name) = nullptr;
  /// What will load the code. Null: nothing that its compiler asks for.
  Toolchain (*toolchain)(std::string_view asked) = nullptr;
  /// The most that this machine does, for arrays of about so many bytes; `again` measures once more, since
  /// other processes may have used the machine before. Null: documents say it
  /// (TuningBackend::documented_peak).
  MachinePeak (*measured_peak)(const Target&, double bytes, bool again) = nullptr;
};

[[nodiscard]] const DeviceBackend& devices_of(const Target& target);

}  // namespace sparsekiln
