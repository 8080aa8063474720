// y = x · Wᵀ by LIBXSMM: for each block row and tile of batch rows, one batch-reduce GEMM over its present blocks.
// bench/xsmm_product.py compiles it where LIBXSMM is installed, 1.17 (Debian's libxsmm-dev) or 2.0, with OpenMP.
// Memory is column-major for LIBXSMM: y[n, out] is out × n there, and blocks are stored as [in, out].

#include <libxsmm.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#if LIBXSMM_VERSION_MAJOR < 2
typedef libxsmm_smmfunction_reducebatch_addr Kernel;

static Kernel dispatch(int block, int n, int x_stride, int out) {
  const libxsmm_blasint lda = block, ldb = x_stride, ldc = out;
  const float alpha = 1, beta = 0;
  return libxsmm_smmdispatch_reducebatch_addr(block, n, block, &lda, &ldb, &ldc, &alpha, &beta, NULL, NULL);
}

static void multiply(Kernel kernel, const float** a, const float** b, float* c, unsigned long long count) {
  kernel(a, b, c, &count);
}
#else
typedef libxsmm_gemmfunction Kernel;

static Kernel dispatch(int block, int n, int x_stride, int out) {
  const libxsmm_datatype type = LIBXSMM_DATATYPE_F32;
  const libxsmm_gemm_shape shape = libxsmm_create_gemm_shape(block, n, block, block, x_stride, out, type, type, type, type);
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
  int packs;         // x is copied to [tile][in / block][tile rows][block] first; else it is read in place
  const int* crow;
  const int* col;
  const float* weight;  // [blocks, block_in, block_out]
  float* packed;
  Kernel whole, rest;
} Product;

// A product of `tile` batch rows at a time; NULL where LIBXSMM has no kernel of these sizes. Arrays are the caller's and must stay.
Product* make_product(int block, int tile, int packs, int batch, int in, int out, const int* crow, const int* col,
                      const float* weight) {
  const int rest = batch % tile, x_stride = packs ? block : in;
  Product made = {block, in, out, out / block, tile, packs, crow, col, weight, NULL, NULL, NULL};
  libxsmm_init();
  if (batch >= tile) made.whole = dispatch(block, tile, x_stride, out);
  if (rest > 0) made.rest = dispatch(block, rest, x_stride, out);
  if ((batch >= tile && made.whole == NULL) || (rest > 0 && made.rest == NULL)) return NULL;
  if (packs) made.packed = aligned_alloc(64, ((size_t)(batch / tile + 1) * tile * in * sizeof(float) + 63) / 64 * 64);
  Product* kept = malloc(sizeof made);
  if (kept == NULL || (packs && made.packed == NULL)) abort();
  *kept = made;
  return kept;
}

void free_product(Product* product) {
  if (product == NULL) return;
  free(product->packed);
  free(product);
}

const char* version(void) { return LIBXSMM_VERSION; }

static void pack(const Product* product, const float* x, int tiles, int batch, int threads) {
  const int block = product->block, columns = product->in / block;
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads)
  for (int tile = 0; tile < tiles; ++tile)
    for (int column = 0; column < columns; ++column) {
      const int first = tile * product->tile;
      const int n = batch - first < product->tile ? batch - first : product->tile;
      float* to = product->packed + ((size_t)tile * columns + column) * product->tile * block;
      for (int i = 0; i < n; ++i)
        memcpy(to + (size_t)i * block, x + (size_t)(first + i) * product->in + (size_t)column * block, block * sizeof(float));
    }
}

static void multiply_row(const Product* product, const float* x, float* y, int batch, int tile, int row) {
  const int begin = product->crow[row], end = product->crow[row + 1], block = product->block;
  const int first = tile * product->tile;
  float* const to = y + (size_t)first * product->out + (size_t)row * block;
  const int n = batch - first < product->tile ? batch - first : product->tile;
  if (begin == end) {
    for (int i = 0; i < n; ++i) memset(to + (size_t)i * product->out, 0, block * sizeof(float));
    return;
  }
  const float* a[MOST_BLOCKS];
  const float* b[MOST_BLOCKS];
  for (int i = begin; i < end; ++i) {
    a[i - begin] = product->weight + (size_t)i * block * block;
    b[i - begin] = product->packs
                       ? product->packed + ((size_t)tile * (product->in / block) + product->col[i]) * product->tile * block
                       : x + (size_t)first * product->in + (size_t)product->col[i] * block;
  }
  multiply(n == product->tile ? product->whole : product->rest, a, b, to, (unsigned long long)(end - begin));
}

// `evenly`: each thread gets as many block rows; else one after the other.
void run_product(const Product* product, const float* x, float* y, int batch, int threads, int evenly) {
  const int tiles = (batch + product->tile - 1) / product->tile;
  omp_set_schedule(evenly ? omp_sched_static : omp_sched_dynamic, 0);
  if (product->packs) pack(product, x, tiles, batch, threads);
#pragma omp parallel for collapse(2) schedule(runtime) num_threads(threads)
  for (int tile = 0; tile < tiles; ++tile)
    for (int row = 0; row < product->rows; ++row) multiply_row(product, x, y, batch, tile, row);
}
