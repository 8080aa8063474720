"""A CUDA file as bench/prototype.py takes one (bench/small_batch_prototype.py): blocks of 32 × 32 f16, and the simplest loop."""

SOURCE = """\
#include <cuda_fp16.h>

template <int KIND, int B, int OB, int NT, int NV, int WARPS, int CL, int D, int MINB, bool PREF, bool PDL>
struct C1 {
  enum : int { kBlock = B, kTileN = NT, kWarps = WARPS, kCtas = MINB };
};
struct Arguments {
  const char* x;
  long long x_row;
  int x_column;
  const char* w;
  half* y;
  int out;
  const int4* ranges;
  const unsigned short* columns;
  unsigned w_bytes, x_bytes, w_piece, x_piece;
};

__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <class C>
__global__ void __launch_bounds__(C::kWarps * 32, C::kCtas) k1(const Arguments a) {
  __shared__ float sums[C::kTileN * C::kBlock];
  const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, piece = threadIdx.x % 4;
  const int first = blockIdx.y * C::kTileN;
  const int4 range = a.ranges[blockIdx.x];
  for (int i = threadIdx.x; i < C::kTileN * C::kBlock; i += C::kWarps * 32) sums[i] = 0;
  __syncthreads();
  float c[C::kTileN / 16][C::kBlock / 8][4] = {};
#pragma unroll 1
  for (int i = range.y + warp; i < range.y + range.z; i += C::kWarps) {
    uint4 x[C::kTileN / 8], w[C::kBlock / 8];
    for (int j = 0; j < C::kBlock / 8; ++j)
      w[j] = *reinterpret_cast<const uint4*>(a.w + ((i * C::kBlock + j * 8 + row) * C::kBlock * 2 + piece * 16));
    for (int j = 0; j < C::kTileN / 8; ++j)
      x[j] = *reinterpret_cast<const uint4*>(a.x + (first + j * 8 + row) * a.x_row + a.columns[i] * a.x_column +
                                             piece * 16);
    for (int m = 0; m < C::kTileN / 16; ++m)
      for (int j = 0; j < C::kBlock / 8; ++j) {
        mma(c[m][j], {x[2 * m].x, x[2 * m + 1].x, x[2 * m].y, x[2 * m + 1].y}, w[j].x, w[j].y);
        mma(c[m][j], {x[2 * m].z, x[2 * m + 1].z, x[2 * m].w, x[2 * m + 1].w}, w[j].z, w[j].w);
      }
  }
  for (int m = 0; m < C::kTileN / 16; ++m)
    for (int j = 0; j < C::kBlock / 8; ++j)
      for (int v = 0; v < 4; ++v)
        atomicAdd(&sums[(m * 16 + v / 2 * 8 + row) * C::kBlock + j * 8 + piece * 2 + v % 2], c[m][j][v]);
  __syncthreads();
  for (int i = threadIdx.x; i < C::kTileN * C::kBlock; i += C::kWarps * 32)
    a.y[(first + i / C::kBlock) * a.out + range.x * C::kBlock + i % C::kBlock] = __float2half(sums[i]);
}

template __global__ void k1<C1<1, 32, 32, 32, 32, 4, 1, 1, 4, false, false>>(const Arguments);
"""
