#ifndef SPARSEKILN_C_H
#define SPARSEKILN_C_H

/* The C interface: what other languages are bound to. Tensors are DLPack's (dlpack.h of any version; the
 * struct DLTensor is the same in all of them). What each thing means is documented under the same name in the
 * C++ headers: this one says only what C adds.
 *
 * Every function that can fail returns an sk_status. Where it fails, its results are left as they were, and
 * sk_error_message() says why. A function is thread-safe where the C++ function of the same name is. Text is
 * UTF-8 and ends with 0; what a function returns is valid as long as the object that it belongs to.
 *
 * Structs begin with their size, which the init functions set; the caller sets that of a view. They grow at
 * their ends only. So a program that was compiled with an older or a newer header than the library works:
 * members that its struct lacks have their defaults, and only those members of a view are written that its
 * struct has. Where its struct is the larger one, the members that the library does not know must be zeros
 * (else SK_INVALID_ARGUMENT); in a view the library sets them to zeros. */

#include <stddef.h>
#include <stdint.h>

#include <dlpack/dlpack.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sk_status {
  SK_OK = 0,
  SK_INVALID_ARGUMENT = 1, /* ErrorKind of error.h, in its order */
  SK_COMPILE = 2,
  SK_DRIVER = 3,
  SK_IO = 4,
  SK_CACHE = 5,
  SK_INTERNAL = 6
} sk_status;

/* The error of the last call of this thread that failed. The log is the compiler's, or empty. Both are valid
 * until the next call that fails. */
const char* sk_error_message(void);
const char* sk_error_log(void);
/* "0.1.0" */
const char* sk_version(void);
/* The name of an activation, "relu" being number 0; null for a number past the last. */
const char* sk_activation_name(size_t number);
/* Whether its derivative may be taken at its result: then y may be given for z. 0 past the last. */
int sk_activation_takes_result(size_t number);
/* The version of this header, and that of the library: one more with each function, struct or member that is
 * added. None is removed. */
#define SK_INTERFACE_VERSION 1
int sk_interface_version(void);
/* What the user of this process should read once, though nothing has failed: why
 * compiled kernels are not kept, why a pack or the shared level of the cache is not used. Gives the oldest
 * sentence that was not given yet, or null where there is none. Valid until the next call on this thread. */
const char* sk_take_warning(void);

/* ---- element types (enum DType of problem.h) ---- */

/* All this text lives as long as the library. */
typedef struct sk_element_type {
  size_t size;
  const char* name;       /* "f32": as options spell it */
  const char* array_name; /* "float32": as NumPy and PyTorch spell it */
  /* The name of the type of sums, block scales, dbias and dblock_scales: "f32" or "f64"; of i8 what its int32
   * sums are converted to. */
  const char* sum_name;
  const char* sum_array_name; /* "float32" or "float64" */
  uint8_t dlpack_code;        /* DLDataTypeCode of dlpack.h */
  uint8_t dlpack_bits;
  int on_cuda;      /* not 0: CUDA targets compute with it; the cpu target does with all */
  int forward_only; /* not 0: gradients do not take it, and nothing takes an "i32" as an operand */
} sk_element_type;
size_t sk_element_type_count(void);
sk_status sk_element_type_describe(size_t index, sk_element_type* view); /* index from 0 */

/* ---- threads (threads.h) ---- */

int32_t sk_threads(void);
int32_t sk_stated_threads(void);
sk_status sk_set_threads(int32_t threads);
typedef void (*sk_team)(void (*body)(void* data), void* data, unsigned threads, unsigned flags);
void sk_set_team(sk_team team);

/* ---- layouts (layout.h, patterns.h, mixing.h) ---- */

typedef struct sk_layout sk_layout;

/* crow has rows + 1 entries, col has crow[rows]; both are copied. */
sk_status sk_layout_from_csr(int64_t rows, int64_t cols, const int32_t* crow, const int32_t* col,
                             sk_layout** layout);
/* rows * cols bytes, row-major; not 0 is present. */
sk_status sk_layout_from_mask(int64_t rows, int64_t cols, const uint8_t* mask, sk_layout** layout);
sk_status sk_layout_load(const char* file, sk_layout** layout);
sk_status sk_layout_save(const sk_layout* layout, const char* file);
sk_status sk_layout_transposed(const sk_layout* layout, sk_layout** transposed);
/* `count` layouts one after the other along the diagonal: see Layout::diagonal. */
sk_status sk_layout_diagonal(const sk_layout* const* parts, size_t count, sk_layout** layout);
void sk_layout_free(sk_layout* layout); /* null does nothing; here and below */

/* The arguments of all patterns; each reads its own. */
typedef struct sk_pattern {
  size_t size;
  int64_t rows, cols;
  double density;
  double rewire;
  uint64_t seed;
  int64_t groups, half_width; /* block_diagonal, banded */
  int64_t extent;             /* `size` of the square ones */
  int64_t edges;
  int diagonal; /* barabasi_albert, watts_strogatz, balanced_watts_strogatz, balanced_random */
  int64_t stride, window, global_blocks, random_blocks;
  int64_t extra_edges; /* barabasi_albert */
} sk_pattern;
/* All zeros. Here and below `size` is that of the caller's struct, and nothing is written beyond its end; the
 * macro initialises the struct of this header. */
void sk_pattern_init_sized(sk_pattern* pattern, size_t size);
#define sk_pattern_init(pattern) sk_pattern_init_sized((pattern), sizeof(*(pattern)))
/* `name` is that of the function in patterns.h: "watts_strogatz". */
sk_status sk_layout_pattern(const char* name, const sk_pattern* pattern, sk_layout** layout);

typedef struct sk_layout_view {
  size_t size;
  int64_t rows, cols, blocks;
  double density;
  const int32_t* crow; /* [rows + 1] */
  const int32_t* col;  /* [blocks] */
  const char* digest;  /* 32 hexadecimal digits */
} sk_layout_view;
sk_status sk_layout_describe(const sk_layout* layout, sk_layout_view* view);

/* How many output blocks the input blocks reach. This struct never grows. */
typedef struct sk_mixing {
  int64_t minimum, maximum;
  double median, mean, share;
} sk_mixing;
/* Writes an entry a layer: after[0] is after the first layer, after[count - 1] after all. */
sk_status sk_layout_mixing(const sk_layout* const* layers, size_t count, sk_mixing* after);

/* ---- what is computed, as text (Computation of problem.h) ---- */

/* A field by its name or its `argument` in sk_field_view, and its text: {"block_scale_gradient", "yes"}. This
 * struct never grows. */
typedef struct sk_field {
  const char* name;
  const char* text;
} sk_field;

/* The fields that exist. All this text is valid as long as the library is loaded. */
typedef struct sk_field_view {
  size_t size;
  const char* name;     /* "operation" */
  const char* argument; /* what other languages call it: "op" */
  const char* option;   /* of the command, without dashes: "op" */
  const char* usual;    /* the text of the default: "forward"; "" for out_dtype, whose default is dtype */
  const char* help;
  int is_flag; /* its texts are "yes" and "no" */
} sk_field_view;
size_t sk_field_count(void);
sk_status sk_field_describe(size_t index, sk_field_view* view); /* index from 0 */

/* The edge situations of a convolution, given as text (convolution.h): how many
 * there are, and how many positions an image of y has. Where `of_position` is not null, it has room for one
 * number of each position, which is its situation. */
sk_status sk_edge_situations(const char* convolution, int32_t* count, int64_t* positions,
                             int32_t* of_position);

/* ---- kernels (compile.h) ---- */

/* Called from time to time on the calling thread with the progress of tuning; returning 0 stops it, and what
 * was measured is kept. */
typedef int (*sk_tuning_watch)(void* context, size_t settled, size_t candidates, double best_us,
                               double seconds);

/* Members as in struct Options; text is read by the parse function of the type. `gates` is block_scales
 * there, and `gate_gradient` is block_scale_gradient. */
typedef struct sk_options {
  size_t size;
  int32_t block_out, block_in;
  const char* batch;            /* "64", "up-to:8192" */
  const char* dtype;            /* "f32": the name of an sk_element_type */
  const char* out_dtype;        /* null: as dtype, or what such operands give */
  const char* operation;        /* "forward", "grad_input", "grad_weight" */
  const char* math;             /* "ieee", "tf32" */
  const char* activation_order; /* "batch-major", "feature-major" */
  int strict_absent;
  const char* epilogue; /* "bias+gelu" */
  const char* derivative;
  int gates, bias_gradient, gate_gradient;
  int64_t in_features, out_features;
  int32_t alignment;
  const char* target;
  const char* config; /* null: chosen */
  const char* tuning; /* "recorded", "now" */
  double tuning_seconds;
  sk_tuning_watch tuning_watch; /* null: none */
  void* tuning_context;
  int attached, tiered;
  const char* cache_dir;    /* "": the usual one */
  const char* const* packs; /* ends with null; null: none */
  const char* require;      /* "anything", "built", "prebuilt" */
  /* Fields of what is computed, which override the members of the same names. Every field can be given here;
   * fields that are added in later versions will have no member. */
  const sk_field* fields;
  size_t field_count;
} sk_options;
/* The defaults of struct Options. */
void sk_options_init_sized(sk_options* options, size_t size);
#define sk_options_init(options) sk_options_init_sized((options), sizeof(*(options)))

typedef struct sk_kernel sk_kernel;

sk_status sk_compile(const sk_layout* layout, const sk_options* options, sk_kernel** kernel);
/* Another handle of the same kernel: its relayout leaves this one as it is. */
sk_status sk_kernel_copy(const sk_kernel* kernel, sk_kernel** copy);
void sk_kernel_free(sk_kernel* kernel);

/* ---- launches (struct Operands of operands.h) ---- */

/* The names of all operands that there are, "x" being number 0; null for a number past the last. */
const char* sk_operand_name(size_t number);
/* Another name that functions take for it: "gates" of "block_scales". Null where there is none. */
const char* sk_operand_alias(size_t number);

/* An operand of a kernel. Text is valid as long as the library. */
typedef struct sk_operand_view {
  size_t size;
  const char* name;  /* "bias" */
  const char* dtype; /* the name of an sk_element_type */
  int is_written;    /* by a launch */
  int is_added_to; /* what it holds before a launch counts; of the main output it does where beta is not 0 */
  int is_main;     /* y, dx or dw */
  int is_activation;  /* it has a row for each of the batch */
  int32_t dimensions; /* of an activation of a linear layer, those of a matrix */
} sk_operand_view;
/* How many a launch takes. They are in the order of sk_operand_name. */
sk_status sk_kernel_operand_count(const sk_kernel* kernel, size_t* count);
sk_status sk_kernel_describe_operand(const sk_kernel* kernel, size_t index, sk_operand_view* view);

/* The most dimensions of an operand. */
#define SK_MOST_DIMENSIONS 5
/* The shape that an operand which a launch writes has, where the launch's first operand (x, of grad_input dy)
 * is `first`, of which the shape alone is read. `shape` has room for SK_MOST_DIMENSIONS. An operand that
 * is added to may have any number of rows, and is refused. */
sk_status sk_kernel_output_shape(const sk_kernel* kernel, const char* operand, const DLTensor* first,
                                 int64_t* shape, int32_t* dimensions);

/* An operand by its name or its alias, which is listed once. A null tensor is as one that is not listed. This
 * struct never grows. */
typedef struct sk_operand {
  const char* name;
  const DLTensor* tensor;
} sk_operand;

/* What a launch takes besides operands. */
typedef struct sk_launch {
  size_t size;
  double alpha, beta; /* with epilogue scale; kernels with float32 sums take the nearest floats */
  double epsilon;     /* of a layer normalisation */
  void* workspace;
  int64_t workspace_size; /* bytes: must be given with a workspace */
  void* stream;           /* a CUstream */
  int32_t threads;        /* on the cpu: at most so many, the calling one included; 0: sk_threads() */
  int32_t reserved;       /* 0 */
} sk_launch;
/* alpha 1, beta 0, epsilon 1e-5, nothing else */
void sk_launch_init_sized(sk_launch* launch, size_t size);
#define sk_launch_init(launch) sk_launch_init_sized((launch), sizeof(*(launch)))
/* `count` operands in any order; those that the kernel does not take are ignored. grad_weight takes one pair.
 * `launch` null: what sk_launch_init sets. */
sk_status sk_kernel_run(const sk_kernel* kernel, const sk_operand* operands, size_t count,
                        const sk_launch* launch);

sk_status sk_kernel_workspace_bytes(const sk_kernel* kernel, int64_t n, int64_t* bytes);
/* How many bytes at the front of a workspace must be zero before its first launch,
 * whatever its size; what follows them may hold anything. */
sk_status sk_kernel_workspace_counter_bytes(const sk_kernel* kernel, int64_t* bytes);
/* Must not be called while another thread uses this handle: where layouts change while threads launch, give
 * each launch a copy. */
sk_status sk_kernel_relayout(sk_kernel* kernel, const sk_layout* layout);
sk_status sk_kernel_wait(const sk_kernel* kernel);

typedef struct sk_kernel_view {
  size_t size;
  const char* operation;
  const char* dtype;
  const char* out_dtype;
  const char* activation_order;
  int64_t in_features, out_features, blocks;
  int32_t block_out, block_in;
  int64_t batch;        /* the bound */
  const char* epilogue; /* "bias+gelu" */
  const char* derivative;
  int gates, bias_gradient, gate_gradient;
  const char* target; /* "x86-64-v3:2" */
  const char* config; /* of the plan: "up to 8: …; up to 64: …" */
  const char* key;    /* in the store, 32 hexadecimal digits */
  const char* source; /* "compiled", "store", "memory", "pack" */
  const char* tier;   /* "baked", "attached" */
  double compile_ms;
} sk_kernel_view;
/* Text is valid until the next call of this function for this handle. */
sk_status sk_kernel_describe(sk_kernel* kernel, sk_kernel_view* view);
/* What the kernel computes, by the name or argument of a field. The text is valid as long as the handle. */
sk_status sk_kernel_field(const sk_kernel* kernel, const char* name, const char** text);

#ifdef __cplusplus
}
#endif

#endif
