// y = x · Wᵀ by LIBXSMM: for each block row and tile of the batch, one batch-reduce GEMM over its present blocks.
// bench/cpu_contestants.py compiles it where LIBXSMM 1.17 is installed (Debian's libxsmm-dev), with OpenMP.
// Memory is column-major for LIBXSMM: y[n, out] is out × n there, and blocks are stored as [in, out].

#include <libxsmm.h>
#include <stdlib.h>

enum { kTile = 64 };  // batch rows of a product

typedef struct {
  int block, in, out, rows;
  const int* crow;
  const int* col;
  const float* weight;  // [blocks, block_in, block_out]
  libxsmm_smmfunction_reducebatch_addr whole, rest;
  int rest_rows;
} Product;

static libxsmm_smmfunction_reducebatch_addr dispatch(int block, int n, int in, int out) {
  const libxsmm_blasint lda = block, ldb = in, ldc = out;
  const float alpha = 1, beta = 0;
  return libxsmm_smmdispatch_reducebatch_addr(block, n, block, &lda, &ldb, &ldc, &alpha, &beta, NULL, NULL);
}

// NULL where LIBXSMM has no kernel of these sizes. Arrays are the caller's and must stay.
Product* make_product(int block, int batch, int in, int out, const int* crow, const int* col, const float* weight) {
  const int rest = batch % kTile;
  Product made = {block, in, out, out / block, crow, col, weight, NULL, NULL, rest};
  libxsmm_init();
  if (batch >= kTile) made.whole = dispatch(block, kTile, in, out);
  if (rest > 0) made.rest = dispatch(block, rest, in, out);
  if ((batch >= kTile && made.whole == NULL) || (rest > 0 && made.rest == NULL)) return NULL;
  Product* kept = malloc(sizeof made);
  *kept = made;
  return kept;
}

void run_product(const Product* product, const float* x, float* y, int batch) {
  const int tiles = (batch + kTile - 1) / kTile;
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int tile = 0; tile < tiles; ++tile)
    for (int row = 0; row < product->rows; ++row) {
      const int begin = product->crow[row], end = product->crow[row + 1];
      const int first = tile * kTile;
      float* const to = y + (long long)first * product->out + row * product->block;
      const int n = batch - first < kTile ? batch - first : kTile;
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
      const unsigned long long count = (unsigned long long)(end - begin);
      (n == kTile ? product->whole : product->rest)(a, b, to, &count);
    }
}
