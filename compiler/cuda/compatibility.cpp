#include "compiler/cuda/compatibility.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include <fmt/format.h>

namespace sparsekiln::cuda {
namespace {

constexpr int kOldestMajor = 12;  // of an NVRTC that is used

int major_of(int version) { return version / 1000; }
int minor_of(int version) { return version % 1000 / 10; }

/// The first release of the Linux driver that loads cubins of a major version: CUDA Compatibility, table 1.
struct FirstRelease {
  int major;
  int release;
};
constexpr std::array<FirstRelease, 2> kFirstReleases{{{12, 525}, {13, 580}}};

}  // namespace

std::string version_text(int version) { return fmt::format("{}.{}", major_of(version), minor_of(version)); }

int parse_version(std::string_view text) {
  int major = 0, minor = 0;
  const char* const end = text.data() + text.size();
  const auto [dot, wrong] = std::from_chars(text.data(), end, major);
  if (wrong != std::errc() || dot == end || *dot != '.') return 0;
  const auto [rest, wrong_minor] = std::from_chars(dot + 1, end, minor);
  const bool sane = major > 0 && major < 1000 && minor >= 0 && minor < 100;
  return wrong_minor == std::errc() && rest == end && sane ? 1000 * major + 10 * minor : 0;
}

Loads loads(int driver, int nvrtc) {
  if (driver == 0 || nvrtc <= driver) return Loads::both;
  return major_of(nvrtc) <= major_of(driver) ? Loads::cubin : Loads::nothing;
}

bool serves_better(int driver, int a, int b) {
  const Loads of_a = loads(driver, a), of_b = loads(driver, b);
  return of_a != of_b ? of_a > of_b : a > b;
}

std::string describe_driver(const Toolchain& toolchain) {
  if (toolchain.driver_version == 0) return "any driver";
  const std::string cuda = "CUDA " + version_text(toolchain.driver_version);
  return toolchain.driver_release.empty() ? fmt::format("a driver for {}", cuda)
                                          : fmt::format("driver {} ({})", toolchain.driver_release, cuda);
}

std::string driver_for(int nvrtc) {
  const auto* const first =
      std::find_if(kFirstReleases.begin(), kFirstReleases.end(),
                   [&](const FirstRelease& row) { return row.major == major_of(nvrtc); });
  return first == kFirstReleases.end() ? fmt::format("a driver for CUDA {}", major_of(nvrtc))
                                       : fmt::format("a driver of release {} or later", first->release);
}

std::string nvrtc_for(int driver) {
  if (driver == 0) return "NVRTC 12.0 or later (pip install nvidia-cuda-nvrtc, or a CUDA toolkit)";
  const int major = major_of(driver), minor = minor_of(driver);
  if (major < kOldestMajor) return {};
  return fmt::format("NVRTC {0}.0 to {0}.{1} (pip install 'nvidia-cuda-nvrtc{2}<{0}.{3}', or a CUDA toolkit)",
                     major, minor, major == 12 ? "-cu12" : "", minor + 1);
}

}  // namespace sparsekiln::cuda
