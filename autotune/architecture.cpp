#include "autotune/architecture.h"

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
//        Architecture" white paper 2022 (1830 MHz for tensor cores). mma.sync gets about 62 % of wgmma's
//        rate: Luo et al. 2024, arXiv:2402.13499.
//   100  B200: "Blackwell Architecture" data sheet of HGX B200 2024, an eighth of it (8 TB/s, 2.25 PFLOPS of
//        f16, dense). mma.sync is not its tensor cores' own instruction either: an estimate, half.
//   110  Thor: "Jetson Thor" data sheet 2025 (273 GB/s). Clock and tensor cores are estimates.
//   120  RTX 5090: "RTX Blackwell GPU Architecture" white paper 2025 (1792 GB/s, 2407 MHz, 209.5 TFLOPS of
//        f16 summed in float32, 104.8 of tf32).
//
// L2's rates of 86 and later are estimates, for the documents do not say: 64 bytes a cycle for half of the
// multiprocessors; the A100's 5120 are those of 80 of its 108. The latencies, kLaunchUs and
// kOverlappedLaunchUs are estimates, too.
constexpr Architecture kArchitectures[] = {
    {75, 1.59, 320, 1270, 512, 0, 1, 64},          {80, 1.41, 1555, 7219, 1024, 512, 1, 64},
    {86, 1.695, 936, 4400, 256, 128, 1, 128},      {87, 1.3, 204.8, 660, 256, 128, 1, 128},
    {89, 2.52, 1008, 10300, 256, 128, 1, 128},     {90, 1.83, 3350, 7700, 2048, 1024, 0.62, 128},
    {100, 1.85, 8000, 8700, 4096, 2048, 0.5, 128}, {110, 1.57, 273, 1000, 2048, 1024, 0.5, 128},
    {120, 2.407, 1792, 13000, 256, 128, 1, 128},
};

}  // namespace

double Architecture::products(DType dtype, Math math) const {
  if (dtype != DType::f32) return half_products;
  return math == Math::tf32 ? tf32_products : lanes;
}

Architecture architecture(const Target& target) {
  Architecture found = kArchitectures[0];
  for (const Architecture& each : kArchitectures)
    if (each.capability <= target.compute_capability()) found = each;
  return found;
}

MachinePeak peak_of(const Problem& problem, const Target& target) {
  if (target.kind == Target::Kind::cpu) return {};
  const Architecture figures = architecture(target);
  return {2 * figures.products(problem.dtype, problem.math) * figures.clock_ghz * target.workers,
          figures.memory_gbytes, false};
}

}  // namespace sparsekiln
