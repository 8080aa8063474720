#include "autotune/architecture.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <iterator>
#include <string_view>

namespace sparsekiln {
namespace {

// Sources, of NVIDIA where not said otherwise.
//
//   75   T4: "Tesla T4" data sheet 2019 (320 GB/s, 65 TFLOPS f16) and "Turing GPU Architecture" white paper
//        2018 (64 lanes, 8 × 64 products); L2 as measured by Jia et al. 2019, arXiv:1903.07486.
//   80   A100 40 GB SXM: "A100 Tensor Core GPU Architecture" white paper 2020 (1555 GB/s, 1410 MHz, 1024 f16
//        products, L2 5120 bytes a cycle).
//   86   RTX 3090: "Ampere GA102 GPU Architecture" white paper 2021 (936 GB/s, 1695 MHz, 71 TFLOPS of f16
//        summed in float32, 35.6 of tf32).
//   87   Orin: "Jetson AGX Orin Series" technical brief 2022 (204.8 GB/s, 1.3 GHz). Tensor cores as GA102's.
//   89   RTX 4090: "Ada GPU Architecture" white paper 2022 (1008 GB/s, 2520 MHz, 165.2 TFLOPS of f16 summed
//        in float32, 82.6 of tf32).
//   90   H100 SXM: data sheet 2023 (3.35 TB/s, 989 TFLOPS of f16, 67 of float32) and "H100 Tensor Core GPU
//        Architecture" white paper 2022 (1830 MHz for tensor cores). The share of mma.sync and L2's rate as
//        fitted to an H100 (cuda/timing.cpp); Luo et al. 2024, arXiv:2402.13499, have 62 % of wgmma's rate.
//   100  B200: "Blackwell Architecture" data sheet of HGX B200 2024, an eighth of it (8 TB/s, 2.25 PFLOPS of
//        f16, dense). mma.sync is not its tensor cores' own instruction either: an estimate, half.
//   110  Thor: "Jetson Thor" data sheet 2025 (273 GB/s). Clock and tensor cores are estimates.
//   120  RTX 5090: "RTX Blackwell GPU Architecture" white paper 2025 (1792 GB/s, 2407 MHz, 209.5 TFLOPS of
//        f16 summed in float32, 104.8 of tf32).
//
// Elements of 8 bits are taken to have twice the rate of f16, which int8 exceeds on some parts.
//
// L2's size is that of the same documents; B200's and Thor's are estimates. Its rates of 86, 87, 89
// and 100 to 120 are estimates, for the documents do not say: 64 bytes a cycle for half of the
// multiprocessors; the A100's 5120 are those of 80 of its 108. kOverlappedLaunchUs is an estimate, too; the
// other constants of Architecture but kIssued were fitted to an H100.
constexpr Architecture kArchitectures[] = {
    {75, 1.59, 320, 1270, 4, 512, 0, 1, 64},
    {80, 1.41, 1555, 7219, 40, 1024, 512, 1, 64},
    {86, 1.695, 936, 4400, 6, 256, 128, 1, 128},
    {87, 1.3, 204.8, 660, 4, 256, 128, 1, 128},
    {89, 2.52, 1008, 10300, 72, 256, 128, 1, 128},
    {90, 1.83, 3350, 13000, 50, 2048, 1024, 0.52, 128},
    {100, 1.85, 8000, 8700, 126, 4096, 2048, 0.5, 128},
    {110, 1.57, 273, 1000, 32, 2048, 1024, 0.5, 128},
    {120, 2.407, 1792, 13000, 96, 256, 128, 1, 128},
};

/// Parts of an architecture with other memory than the usual one, known by their names; the first that is
/// part of a device's name counts. Without a name by their multiprocessors, as far as these tell them from
/// the usual part.
struct NamedPart {
  std::string_view name;
  int capability;
  std::int32_t workers;
  double memory_gbytes;
  double cache_mib;
};
// NVIDIA's data sheets: A100 80 GB 2021 (SXM 2039 GB/s, PCIe 1935), A30 2021, A10 and A40 2021, L4, L40 and
// L40S 2023, H100 2023 (PCIe 2 TB/s, NVL 3.9), H200 2024, GH200 2023 (96 GB as its 480 GB version: 4 TB/s,
// 144 GB 4.9).
constexpr NamedPart kParts[] = {
    {"A100-SXM4-80GB", 80, 108, 2039, 40},
    {"A100 80GB PCIe", 80, 108, 1935, 40},
    {"A30", 80, 56, 933, 24},
    {"A10", 86, 72, 600, 6},
    {"A40", 86, 84, 696, 6},
    {"L40S", 89, 142, 864, 96},
    {"L40", 89, 142, 864, 96},
    {"L4", 89, 58, 300, 48},
    {"H100 PCIe", 90, 114, 2000, 50},
    {"H100 NVL", 90, 132, 3900, 50},
    {"H200", 90, 132, 4800, 50},
    {"GH200 144G", 90, 132, 4900, 50},
    {"GH200 480GB", 90, 132, 4000, 50},
};

/// Multiprocessors that do not tell a part from the usual one.
constexpr std::int32_t kUsualWorkers[] = {108, 132};

/// Whether a text has these words, and not only the beginning or the end of others.
bool has_words(std::string_view text, std::string_view words) {
  const auto within_word = [&](std::size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  for (std::size_t at = text.find(words); at != std::string_view::npos; at = text.find(words, at + 1))
    if (!(at > 0 && within_word(at - 1)) && !within_word(at + words.size())) return true;
  return false;
}

bool is_part(const NamedPart& named, const Target& target, const Part& part) {
  if (!part.name.empty()) return has_words(part.name, named.name);
  const bool usual =
      std::find(std::begin(kUsualWorkers), std::end(kUsualWorkers), named.workers) != std::end(kUsualWorkers);
  return !usual && named.workers == target.workers;
}

}  // namespace

double Architecture::products(DType dtype, Math math) const {
  if (size_of(dtype) == 1) return 2 * half_products;
  if (dtype != DType::f32) return half_products;
  return math == Math::tf32 ? tf32_products : lanes;
}

Part part_of(const Environment& environment) {
  if (environment.policy == kModelledPolicy) return {};
  return {.name = environment.device, .cache_bytes = environment.cache_bytes};
}

Architecture architecture(const Target& target, const Part& part) {
  Architecture found = kArchitectures[0];
  for (const Architecture& each : kArchitectures)
    if (each.capability <= target.compute_capability()) found = each;
  for (const NamedPart& named : kParts) {
    if (named.capability != found.capability || !is_part(named, target, part)) continue;
    found.memory_gbytes = named.memory_gbytes;
    found.cache_mib = named.cache_mib;
    break;
  }
  found.clusters_of_four = part.clusters_of_four;
  if (part.cache_bytes > 0) found.cache_mib = static_cast<double>(part.cache_bytes) / (1 << 20);
  return found;
}

}  // namespace sparsekiln
