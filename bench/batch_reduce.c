// y = x · Wᵀ by LIBXSMM: for each block row and tile of batch rows, one batch-reduce GEMM over its present blocks.
// bench/cpu_contestants.py compiles it where LIBXSMM is installed, 1.17 (Debian's libxsmm-dev) or 2.0, with OpenMP.
// Memory is column-major for LIBXSMM: y[n, out] is out × n there, and blocks are stored as [in, out].

#include <libxsmm.h>
#include <stdlib.h>

#if LIBXSMM_VERSION_MAJOR < 2
typedef libxsmm_smmfunction_reducebatch_addr Kernel;

static Kernel dispatch(int block, int n, int in, int out) {
  const libxsmm_blasint lda = block, ldb = in, ldc = out;
  const float alpha = 1, beta = 0;
  return libxsmm_smmdispatch_reducebatch_addr(block, n, block, &lda, &ldb, &ldc, &alpha, &beta, NULL, NULL);
}

static void multiply(Kernel kernel, const float** a, const float** b, float* c, unsigned long long count) {
  kernel(a, b, c, &count);
}
#else
typedef libxsmm_gemmfunction Kernel;

static Kernel dispatch(int block, int n, int in, int out) {
  const libxsmm_datatype type = LIBXSMM_DATATYPE_F32;
  const libxsmm_gemm_shape shape = libxsmm_create_gemm_shape(block, n, block, block, in, out, type, type, type, type);
  const libxsmm_gemm_batch_reduce_config reduce = {LIBXSMM_GEMM_BATCH_REDUCE_ADDRESS, 0, 0, 0};
  return libxsmm_dispatch_brgemm(shape, LIBXSMM_GEMM_FLAG_BETA_0, LIBXSMM_GEMM_PREFETCH_NONE, reduce);
}

static void multiply(Kernel kernel, const float** a, const float** b, float* c, unsigned long long count) {
  const libxsmm_gemm_param operands = {.op.tertiary = &count, .a.primary = a, .b.primary = b, .c.primary = c};
  kernel(&operands);
}
#endif

typedef struct {
  int block, in, out, rows, tile;
  const int* crow;
  const int* col;
  const float* weight;  // [blocks, block_in, block_out]
  Kernel whole, rest;
  int rest_rows;
} Product;

// A product of `tile` batch rows at a time; NULL where LIBXSMM has no kernel of these sizes. Arrays are the caller's and must stay.
Product* make_product(int block, int tile, int batch, int in, int out, const int* crow, const int* col, const float* weight) {
  const int rest = batch % tile;
  Product made = {block, in, out, out / block, tile, crow, col, weight, NULL, NULL, rest};
  libxsmm_init();
  if (batch >= tile) made.whole = dispatch(block, tile, in, out);
  if (rest > 0) made.rest = dispatch(block, rest, in, out);
  if ((batch >= tile && made.whole == NULL) || (rest > 0 && made.rest == NULL)) return NULL;
  Product* kept = malloc(sizeof made);
  *kept = made;
  return kept;
}

void run_product(const Product* product, const float* x, float* y, int batch, int threads) {
  const int rows_of_tile = product->tile;
  const int tiles = (batch + rows_of_tile - 1) / rows_of_tile;
#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(threads)
  for (int tile = 0; tile < tiles; ++tile)
    for (int row = 0; row < product->rows; ++row) {
      const int begin = product->crow[row], end = product->crow[row + 1];
      const int first = tile * rows_of_tile;
      float* const to = y + (long long)first * product->out + row * product->block;
      const int n = batch - first < rows_of_tile ? batch - first : rows_of_tile;
      if (begin == end) {
        for (int i = 0; i < n; ++i)
          for (int j = 0; j < product->block; ++j) to[(long long)i * product->out + j] = 0;
        continue;
      }
      const float* a[4096];
      const float* b[4096];
      for (int i = begin; i < end; ++i) {
        a[i - begin] = product->weight + (long long)i * product->block * product->block;
        b[i - begin] = x + (long long)first * product->in + product->col[i] * product->block;
      }
      multiply(n == rows_of_tile ? product->whole : product->rest, a, b, to, (unsigned long long)(end - begin));
    }
}
