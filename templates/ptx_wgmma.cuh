#pragma once

// Wrappers of the tensor cores' asynchronous instructions of sm_90a (PTX ISA, "Asynchronous Warpgroup Level
// Matrix Multiply-Accumulate Instructions"), which all four warps of a warpgroup execute together. Operands
// are in shared memory, where a descriptor says they are; sums are registers, which nothing may read or write
// between the first product and the wait for its group.

namespace sparsekiln::ptx {

/// Lets the products that follow use registers that were written before.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Closes a group of queued products.
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `kPending` groups are incomplete.
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// An optimization barrier: nothing reads the value earlier, or writes it later.
__device__ __forceinline__ void pin(float& value) { asm volatile("" : "+f"(value)); }
__device__ __forceinline__ void pin(int& value) { asm volatile("" : "+r"(value)); }
template <class Value, int kCount>
__device__ __forceinline__ void pin(Value (&values)[kCount]) {
#pragma unroll
  for (int v = 0; v < kCount; ++v) pin(values[v]);
}

/// Moves registers from a warpgroup that needs few to those that need many: each takes part of what the CTA
/// was launched with. Every warp of the warpgroup calls this, and waits until there are as many.
template <int kRegisters>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void acquire_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Types of A and B.
enum WgmmaOperands : int { kWgmmaF16, kWgmmaBf16, kWgmmaTf32, kWgmmaE4m3, kWgmmaE5m2, kWgmmaI8 };

// sums += A · Bᵀ for 64 rows and 32, 64, 112, 128, 192, 224 or 256 columns, 32 bytes of k. A and B are
// descriptors; kRows is 1 where the rows of B's transpose are contiguous, [k][column], otherwise 0, and
// kRowsOfA where those of A's are, [k][row]; they exist for types of 16 bits. If `add` is 0, sums are
// overwritten. Sums are floats, or ints that wrap around. The text of an instruction has to be a literal that
// names each register, so it takes macros.

#define SPARSEKILN_SUMS_8(sort, i)                                                           \
  sort(sums[i]), sort(sums[i + 1]), sort(sums[i + 2]), sort(sums[i + 3]), sort(sums[i + 4]), \
      sort(sums[i + 5]), sort(sums[i + 6]), sort(sums[i + 7])
#define SPARSEKILN_SUMS_16(sort, i) SPARSEKILN_SUMS_8(sort, i), SPARSEKILN_SUMS_8(sort, i + 8)
#define SPARSEKILN_SUMS_32(sort, i)                                                            \
  SPARSEKILN_SUMS_8(sort, i), SPARSEKILN_SUMS_8(sort, i + 8), SPARSEKILN_SUMS_8(sort, i + 16), \
      SPARSEKILN_SUMS_8(sort, i + 24)
#define SPARSEKILN_SUMS_56(sort, i)                                                              \
  SPARSEKILN_SUMS_32(sort, i), SPARSEKILN_SUMS_8(sort, i + 32), SPARSEKILN_SUMS_8(sort, i + 40), \
      SPARSEKILN_SUMS_8(sort, i + 48)
#define SPARSEKILN_SUMS_64(sort, i) SPARSEKILN_SUMS_32(sort, i), SPARSEKILN_SUMS_32(sort, i + 32)
#define SPARSEKILN_SUMS_96(sort, i) SPARSEKILN_SUMS_64(sort, i), SPARSEKILN_SUMS_32(sort, i + 64)
#define SPARSEKILN_SUMS_112(sort, i) SPARSEKILN_SUMS_56(sort, i), SPARSEKILN_SUMS_56(sort, i + 56)
#define SPARSEKILN_SUMS_128(sort, i) SPARSEKILN_SUMS_64(sort, i), SPARSEKILN_SUMS_64(sort, i + 64)

// `after` is what follows the scale of sums: the signs of A and B, and whether they are transposed.
#define SPARSEKILN_PRODUCT(sort, all, types, columns, registers, a_at, b_at, add_at, after)                  \
  asm volatile("{\n\t.reg .pred adds;\n\tsetp.ne.b32 adds, %" add_at                                         \
               ", 0;\n\twgmma.mma_async.sync.aligned.m64n" columns types " " registers ", %" a_at ", %" b_at \
               ", adds" after ";\n\t}"                                                                       \
               : all(sort, 0)                                                                                \
               : "l"(a), "l"(b), "r"(add), "n"(kRowsOfA), "n"(kRows))

#define SPARSEKILN_PRODUCTS(count, columns, registers, a_at, b_at, add_at, rows_of_a_at, rows_at)            \
  template <int kOperands, int kRows, int kRowsOfA = 0>                                                      \
  __device__ __forceinline__ void queue_product(float(&sums)[count], unsigned long long a,                   \
                                                unsigned long long b, int add) {                             \
    static_assert(kOperands >= kWgmmaF16 && kOperands <= kWgmmaE5m2, "sums of floats");                      \
    if constexpr (kOperands == kWgmmaE4m3)                                                                   \
      SPARSEKILN_PRODUCT("+f", SPARSEKILN_SUMS_##count, "k32.f32.e4m3.e4m3", columns, registers, a_at, b_at, \
                         add_at, ", 1, 1");                                                                  \
    else if constexpr (kOperands == kWgmmaE5m2)                                                              \
      SPARSEKILN_PRODUCT("+f", SPARSEKILN_SUMS_##count, "k32.f32.e5m2.e5m2", columns, registers, a_at, b_at, \
                         add_at, ", 1, 1");                                                                  \
    else if constexpr (kOperands == kWgmmaTf32)                                                              \
      SPARSEKILN_PRODUCT("+f", SPARSEKILN_SUMS_##count, "k8.f32.tf32.tf32", columns, registers, a_at, b_at,  \
                         add_at, ", 1, 1");                                                                  \
    else if constexpr (kOperands == kWgmmaBf16)                                                              \
      SPARSEKILN_PRODUCT("+f", SPARSEKILN_SUMS_##count, "k16.f32.bf16.bf16", columns, registers, a_at, b_at, \
                         add_at, ", 1, 1, %" rows_of_a_at ", %" rows_at);                                    \
    else                                                                                                     \
      SPARSEKILN_PRODUCT("+f", SPARSEKILN_SUMS_##count, "k16.f32.f16.f16", columns, registers, a_at, b_at,   \
                         add_at, ", 1, 1, %" rows_of_a_at ", %" rows_at);                                    \
  }                                                                                                          \
  template <int kOperands, int kRows, int kRowsOfA = 0>                                                      \
  __device__ __forceinline__ void queue_product(int(&sums)[count], unsigned long long a,                     \
                                                unsigned long long b, int add) {                             \
    static_assert(kOperands == kWgmmaI8, "sums of ints");                                                    \
    SPARSEKILN_PRODUCT("+r", SPARSEKILN_SUMS_##count, "k32.s32.s8.s8", columns, registers, a_at, b_at,       \
                       add_at, "");                                                                          \
  }

SPARSEKILN_PRODUCTS(16, "32", "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}", "16",
                    "17", "18", "19", "20")
SPARSEKILN_PRODUCTS(
    32, "64",
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}",
    "32", "33", "34", "35", "36")
SPARSEKILN_PRODUCTS(
    56, "112",
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
    "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55}",
    "56", "57", "58", "59", "60")
SPARSEKILN_PRODUCTS(
    64, "128",
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
    "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
    "%59, %60, %61, %62, %63}",
    "64", "65", "66", "67", "68")
SPARSEKILN_PRODUCTS(
    96, "192",
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
    "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
    "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
    "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}",
    "96", "97", "98", "99", "100")
SPARSEKILN_PRODUCTS(
    112, "224",
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
    "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, "
    "%61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, "
    "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, "
    "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111}",
    "112", "113", "114", "115", "116")
SPARSEKILN_PRODUCTS(
    128, "256",
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
    "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "
    "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "
    "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, "
    "%97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "
    "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}",
    "128", "129", "130", "131", "132")

#undef SPARSEKILN_PRODUCTS
#undef SPARSEKILN_PRODUCT
#undef SPARSEKILN_SUMS_128
#undef SPARSEKILN_SUMS_112
#undef SPARSEKILN_SUMS_96
#undef SPARSEKILN_SUMS_64
#undef SPARSEKILN_SUMS_56
#undef SPARSEKILN_SUMS_32
#undef SPARSEKILN_SUMS_16
#undef SPARSEKILN_SUMS_8

}  // namespace sparsekiln::ptx
