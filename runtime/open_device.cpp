#include "runtime/open_device.h"

#include <charconv>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "runtime/cuda/device.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/emulator.h"
#ifdef SPARSEKILN_CPU
#include "runtime/cpu/device.h"
#endif

namespace sparsekiln {
namespace {

constexpr std::string_view kCuda = "cuda";

constexpr std::string_view kEmulated = "emulated";

bool names_cuda(std::string_view text) { return text == kCuda || text.starts_with("cuda:"); }
bool names_emulated(std::string_view text) { return text == kEmulated || text.starts_with("emulated:"); }

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

/// The device number of "cuda:1"; -1 for "cuda", the current one.
int ordinal_of(std::string_view text) {
  if (text == kCuda) return -1;
  const std::string_view digits = text.substr(kCuda.size() + 1);
  int ordinal = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  if (status != std::errc{} || end != digits.data() + digits.size() || ordinal < 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("device '{}': write cuda, or cuda:N with a device number N", printable(text)));
  return ordinal;
}

/// A primary context that this library opened stays for the life of the process, as with CUDA's own runtime:
/// the threads it was made current on do not know of our handles. Another context belongs to the caller who
/// made it.
std::shared_ptr<const Device> open_cuda(int ordinal) {
  static std::mutex mutex;
  // Never destroyed: at the end of the process the driver may be gone before us.
  static auto& kept = *new std::map<int, std::shared_ptr<const Device>>;
  const int number = ordinal < 0 && cuda::current_context() == nullptr ? 0 : ordinal;
  std::shared_ptr<const Device> device = cuda::open_device(number);
  if (number >= 0) {
    const std::lock_guard lock(mutex);
    kept.try_emplace(number, device);
  }
  return device;
}

/// As `open_cuda`: its context stays, which also makes it cheap to open again.
std::shared_ptr<const cuda::Context> open_emulated(std::string_view text) {
  static std::mutex mutex;
  static auto& kept = *new std::map<CUcontext, std::shared_ptr<const cuda::Context>>;
  std::shared_ptr<const cuda::Context> context =
      cuda::open_emulated(emulated_target(text).compute_capability());
  const std::lock_guard lock(mutex);
  kept.try_emplace(context->handle(), context);
  return context;
}

std::shared_ptr<const Device> open_cpu() {
#ifdef SPARSEKILN_CPU
  return cpu::open_device();
#else
  throw Error(
      ErrorKind::driver,
      "the cpu target needs LLVM, and this build of Sparsekiln has none (meson option cpu); a CUDA device "
      "would work");
#endif
}

}  // namespace

std::shared_ptr<const Device> open_device(std::string_view text) {
  if (text == "cpu") return open_cpu();
  if (text == "auto") return cuda::available() ? open_cuda(-1) : open_cpu();
  if (names_cuda(text)) return open_cuda(ordinal_of(text));
  if (names_emulated(text)) return cuda::open_device(open_emulated(text));
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("device '{}' is not known: cpu, cuda, cuda:N, emulated, emulated:ARCH (sm_80) or auto",
                  printable(text)));
}

Target resolve_target(std::string_view text) {
  if (text == "auto") return cuda::available() ? open_cuda(-1)->target() : Target::host();
  if (names_cuda(text)) return open_cuda(ordinal_of(text))->target();
  if (names_emulated(text)) return emulated_target(text);
  return Target::parse(text);
}

const void* context_for(std::string_view target) {
  const bool means_cpu =
      target.starts_with("cpu") || target.starts_with("x86") || target.starts_with("generic");
  if (names_emulated(target)) return open_emulated(target)->handle();
  if (means_cpu || (target == "auto" && !cuda::available())) return nullptr;
  if (const void* context = cuda::current_context()) return context;
  if (!names_cuda(target) && target != "auto")
    (void)Target::parse(target);  // refused before a device is looked for
  (void)open_cuda(names_cuda(target) ? ordinal_of(target) : -1);
  return cuda::current_context();
}

}  // namespace sparsekiln
