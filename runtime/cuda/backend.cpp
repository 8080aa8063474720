#include "runtime/backend.h"

#include <charconv>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "runtime/cuda/device.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/emulator.h"
#include "runtime/open_device.h"

namespace sparsekiln::cuda {
namespace {

constexpr std::string_view kCuda = "cuda";
constexpr std::string_view kEmulated = "emulated";

bool names(std::string_view word, std::string_view text) {
  return text.starts_with(word) && (text.size() == word.size() || text[word.size()] == ':');
}
bool is_emulated(std::string_view text) { return names(kEmulated, text); }
bool is_device(std::string_view text) { return names(kCuda, text) || is_emulated(text); }

/// What "emulated", "emulated:sm_80" or "emulated:sm_80:7" compiles for: a Target as text after the colon.
Target emulated_target(std::string_view text) {
  const Target target = Target::parse(text == kEmulated ? "sm_90" : text.substr(kEmulated.size() + 1));
  if (target.kind != Target::Kind::cuda)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("device '{}': GPUs are emulated; write emulated:sm_90, or leave the architecture away",
                    printable(text)));
  const std::string plain = fmt::format("sm_{}", target.compute_capability());
  if (target.arch != plain)
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format(
            "device '{}': the instructions that only {} has are not emulated yet; emulated:{} would work",
            printable(text), target.arch, plain));
  return target;
}

/// The device number of "cuda:1"; -1 for "cuda" and for no name: the current one.
int ordinal_of(std::string_view name) {
  if (name.empty() || name == kCuda) return -1;
  const std::string_view digits = name.substr(kCuda.size() + 1);
  int ordinal = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  if (status != std::errc{} || end != digits.data() + digits.size() || ordinal < 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("device '{}': write cuda, or cuda:N with a device number N", printable(name)));
  return ordinal;
}

/// A primary context that this library opened stays for the life of the process, as with CUDA's own runtime:
/// the threads it was made current on do not know of our handles. Another context belongs to the caller who
/// made it.
std::shared_ptr<const Device> open_number(int ordinal) {
  static std::mutex mutex;
  // Never destroyed: at the end of the process the driver may be gone before us.
  static auto& kept = *new std::map<int, std::shared_ptr<const Device>>;
  const int number = ordinal < 0 && current_context() == nullptr ? 0 : ordinal;
  std::shared_ptr<const Device> device = open_device(number);
  if (number >= 0) {
    const std::lock_guard lock(mutex);
    kept.try_emplace(number, device);
  }
  return device;
}

/// As `open_number`: its context stays, which also makes it cheap to open again.
std::shared_ptr<const Context> context_of_emulated(std::string_view text) {
  static std::mutex mutex;
  static auto& kept = *new std::map<CUcontext, std::shared_ptr<const Context>>;
  std::shared_ptr<const Context> context = open_emulated(emulated_target(text).compute_capability());
  const std::lock_guard lock(mutex);
  kept.try_emplace(context->handle(), context);
  return context;
}

std::shared_ptr<const Device> open(std::string_view name) {
  return is_emulated(name) ? open_device(context_of_emulated(name)) : open_number(ordinal_of(name));
}

Target target_of(std::string_view name) {
  return is_emulated(name) ? emulated_target(name) : open(name)->target();
}

std::shared_ptr<const Device> at_hand(const Target& target, std::string_view asked) {
  if (names_device(asked)) return sparsekiln::open_device(asked);
  if (!available()) return nullptr;
  std::shared_ptr<const Device> device = open({});
  return device->target() == target ? device : nullptr;
}

const void* context(std::string_view name) {
  if (is_emulated(name)) return context_of_emulated(name)->handle();
  if (const void* current = current_context()) return current;
  static_cast<void>(open(name));
  return current_context();
}

/// This machine's driver; any where the emulator runs the code.
Toolchain toolchain(std::string_view asked) { return is_emulated(asked) ? Toolchain() : machine_toolchain(); }

}  // namespace

extern const DeviceBackend kDevices;
constexpr DeviceBackend kDevices{.kind = Target::Kind::cuda,
                                 .names = "cuda, cuda:N, emulated, emulated:ARCH (sm_80)",
                                 .is_device = is_device,
                                 .is_emulated = is_emulated,
                                 .available = available,
                                 .open = open,
                                 .target_of = target_of,
                                 .at_hand = at_hand,
                                 .records_of_architecture = false,
                                 .context = context,
                                 .toolchain = toolchain};

}  // namespace sparsekiln::cuda
