// From a layout to a kernel that runs, on this machine's cpu.
#include <cstdio>
#include <vector>

#include <sparsekiln/sparsekiln.h>
namespace sk = sparsekiln;

int main() {
  const sk::Layout layout =
      sk::patterns::watts_strogatz(16, 16, /*density=*/0.25, /*rewire=*/0.2, /*seed=*/3);
  const sk::Kernel linear = sk::compile(layout, {.block = {32, 32}, .batch = 8, .target = "cpu"});

  std::vector<float> x(8 * 512, 0.5F), w(layout.blocks() * 32 * 32, 0.25F), y(8 * 512);
  linear({.x = sk::view(x.data(), sk::DType::f32, 8, 512),
          .w = sk::view(w.data(), sk::DType::f32, layout.blocks(), 32, 32),
          .y = sk::view(y.data(), sk::DType::f32, 8, 512)});

  // Every product is 1/8, and a row of four blocks sums 128 of them.
  std::printf("y[0] = %g\n", y[0]);
  return y[0] == 0.125F * 32 * static_cast<float>(layout.row(0).size()) ? 0 : 1;
}
