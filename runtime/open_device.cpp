#include "runtime/open_device.h"

#include <array>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/backend_rows.h"
#include "runtime/backend.h"

namespace sparsekiln {

SPARSEKILN_BACKENDS(SPARSEKILN_DECLARE_ROW, DeviceBackend, kDevices)

namespace {

constexpr std::array kAll{SPARSEKILN_BACKENDS(SPARSEKILN_ROW_ADDRESS, kDevices)};

constexpr std::string_view kAuto = "auto";

/// A device by its name, or by its kind alone.
struct DeviceName {
  const DeviceBackend* devices;
  std::string_view name;  ///< empty: the current one
};

/// What a text says of a device; nothing where it is an architecture or makes no sense.
std::optional<DeviceName> parse_device(std::string_view text) {
  for (const DeviceBackend* const devices : kAll) {
    if (text == kAuto && devices->available()) return DeviceName{devices, {}};
    if (devices->is_device(text)) return DeviceName{devices, text};
  }
  return std::nullopt;
}

}  // namespace

const DeviceBackend& devices_of(const Target& target) { return row_of(target, kAll); }

std::shared_ptr<const Device> open_device(std::string_view text) {
  if (const auto asked = parse_device(text)) return asked->devices->open(asked->name);
  std::string names;
  for (const DeviceBackend* const devices : kAll) names += fmt::format("{}, ", devices->names);
  throw Error(ErrorKind::invalid_argument,
              fmt::format("device '{}' is not known: {}or auto", printable(text), names));
}

std::shared_ptr<const Device> open_device_for(const Target& target, std::string_view asked) {
  const DeviceBackend& devices = devices_of(target);
  return devices.open(devices.is_device(asked) ? asked : std::string_view());
}

bool names_device(std::string_view text) { return text == kAuto || parse_device(text).has_value(); }

bool names_emulator(std::string_view text) {
  const std::optional<DeviceName> asked = parse_device(text);
  return asked && asked->devices->is_emulated != nullptr && asked->devices->is_emulated(asked->name);
}

Target resolve_target(std::string_view text) {
  const auto asked = parse_device(text);
  return asked ? asked->devices->target_of(asked->name) : Target::parse(text);
}

const void* context_for(std::string_view target) {
  const std::optional<DeviceName> asked = parse_device(target);
  const DeviceBackend& devices = asked ? *asked->devices : devices_of(Target::parse(target));
  return devices.context == nullptr ? nullptr : devices.context(asked ? asked->name : std::string_view());
}

}  // namespace sparsekiln
