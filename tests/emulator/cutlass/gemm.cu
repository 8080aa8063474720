// d = 2 · a · bᵀ + c in half precision by the collectives for sm_90 of CUTLASS, as a kernel and, with HOST, as a
// program that launches it through the driver that it is linked with. run.py says what SCHEDULE, EPILOGUE, TILE_M
// and CLUSTER are.
#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"

using Half = cutlass::half_t;
using RowMajor = cutlass::layout::RowMajor;
using GemmTile = cute::Shape<cute::Int<TILE_M>, cute::_128, cute::_64>;
using ClusterShape = cute::Shape<cute::Int<CLUSTER>, cute::_1, cute::_1>;

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, GemmTile, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, Half, RowMajor, 8, Half, RowMajor, 8,
    cutlass::epilogue::EPILOGUE>::CollectiveOp;
using MainLoop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Half, RowMajor, 8, Half, cutlass::layout::ColumnMajor, 8,
    float, GemmTile, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::SCHEDULE>::CollectiveOp;
using Gemm = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, MainLoop, Epilogue>;

extern "C" __global__ void __launch_bounds__(Gemm::MaxThreadsPerBlock, 1)
    gemm(const __grid_constant__ Gemm::Params parameters) {
  extern __shared__ char memory[];
  Gemm{}(parameters, memory);
}

#ifdef HOST

#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = "";
  cuGetErrorString(result, &text);
  const auto report = reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "emulatorLastReport"));
  std::printf("%s: %s; %s\n", what, text, report == nullptr ? "" : report());
  std::exit(1);
}

CUfunction load(const char* file) {
  std::ifstream stream(file);
  const std::string ptx{std::istreambuf_iterator<char>(stream), {}};
  char log[4096] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log - 1)};
  CUmodule module = nullptr;
  check(cuModuleLoadDataEx(&module, ptx.c_str(), 2, options, values), log);
  CUfunction function = nullptr;
  check(cuModuleGetFunction(&function, module, "gemm"), "finding the kernel");
  check(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, Gemm::SharedStorageSize),
        "asking for shared memory");
  return function;
}

/// A row-major matrix of whole numbers, on both sides.
struct Matrix {
  Matrix(int rows, int columns_, unsigned seed) : columns(columns_), values(rows * columns_) {
    std::mt19937 dice(seed);
    for (Half& value : values) value = Half(static_cast<float>(static_cast<int>(dice() % 7) - 3));
    check(cuMemAlloc(&address, values.size() * sizeof(Half)), "allocating");
    check(cuMemcpyHtoD(address, values.data(), values.size() * sizeof(Half)), "copying");
  }
  float at(int row, int column) const { return static_cast<float>(values[row * columns + column]); }
  Half* device() const { return reinterpret_cast<Half*>(address); }

  int columns;
  std::vector<Half> values;
  CUdeviceptr address = 0;
};

/// Stride of a row-major matrix, as CUTLASS has it.
auto stride_of(int columns) {
  return cute::make_stride(std::int64_t{columns}, cute::_1{}, std::int64_t{0});
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int m = std::atoi(argv[2]), n = std::atoi(argv[3]), k = std::atoi(argv[4]);
  check(cuInit(0), "starting the driver");
  CUcontext context = nullptr;
  check(cuDevicePrimaryCtxRetain(&context, 0), "opening the device");
  check(cuCtxSetCurrent(context), "opening the device");
  CUfunction function = load(argv[1]);
  const Matrix a(m, k, 1), b(n, k, 2), c(m, n, 3);
  Matrix d(m, n, 4);

  typename Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm,
                                     {m, n, k, 1},
                                     {a.device(), stride_of(k), b.device(), stride_of(k)},
                                     {{2.0f, 1.0f}, c.device(), stride_of(n), d.device(), stride_of(n)}};
  arguments.hw_info.sm_count = 4;  // so that blocks have several tiles
  arguments.hw_info.max_active_clusters = 4 / CLUSTER;
  auto parameters = Gemm::to_underlying_arguments(arguments, nullptr);
  const dim3 grid = Gemm::get_grid_shape(parameters);
  const dim3 block = Gemm::get_block_shape();

  CUlaunchAttribute cluster{};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {CLUSTER, 1, 1};
  const CUlaunchConfig config{grid.x,  grid.y,  grid.z,  block.x, block.y, block.z, Gemm::SharedStorageSize,
                              nullptr, &cluster, 1};
  void* pointers[] = {&parameters};
  check(cuLaunchKernelEx(&config, function, pointers, nullptr), "launching");
  check(cuCtxSynchronize(), "running");
  check(cuMemcpyDtoH(d.values.data(), d.address, d.values.size() * sizeof(Half)), "copying");

  int wrong = 0;
  for (int row = 0; row < m; ++row)
    for (int column = 0; column < n; ++column) {
      float sum = 0;
      for (int i = 0; i < k; ++i) sum += a.at(row, i) * b.at(column, i);
      wrong += d.at(row, column) != static_cast<float>(Half(2 * sum + c.at(row, column))) ? 1 : 0;
    }
  std::printf("%d of %d wrong\n", wrong, m * n);
  return wrong == 0 ? 0 : 1;
}

#endif
