#include <stddef.h>
#include <stdint.h>

#include <sparsekiln/c.h>

/* The header is C: this file is compiled as that. */
int header_is_c(void);
int header_is_c(void) {
  sk_options options;
  sk_options_init(&options);
  return options.size == sizeof(sk_options);
}

/* Where pointers, size_t and double have 8 bytes, members stay where programs that are already compiled
 * expect them. A new member is appended: SIZE then fails, and its author adds the member here, states the new
 * size, and adds one to SK_INTERFACE_VERSION. No line with PLACE ever changes. */
#if UINTPTR_MAX == UINT64_MAX
#define PLACE(type, member, offset) \
  _Static_assert(offsetof(type, member) == (offset), "a member of the C interface has moved")
#define SIZE(type, bytes)                                              \
  _Static_assert(sizeof(type) == (bytes) && SK_INTERFACE_VERSION == 1, \
                 "a struct of the C interface has another size: state its members and the version")

PLACE(sk_element_type, size, 0);
PLACE(sk_element_type, name, 8);
PLACE(sk_element_type, array_name, 16);
PLACE(sk_element_type, sum_name, 24);
PLACE(sk_element_type, sum_array_name, 32);
PLACE(sk_element_type, dlpack_code, 40);
PLACE(sk_element_type, dlpack_bits, 41);
PLACE(sk_element_type, on_cuda, 44);
PLACE(sk_element_type, forward_only, 48);
SIZE(sk_element_type, 56);

PLACE(sk_pattern, size, 0);
PLACE(sk_pattern, rows, 8);
PLACE(sk_pattern, cols, 16);
PLACE(sk_pattern, density, 24);
PLACE(sk_pattern, rewire, 32);
PLACE(sk_pattern, seed, 40);
PLACE(sk_pattern, groups, 48);
PLACE(sk_pattern, half_width, 56);
PLACE(sk_pattern, extent, 64);
PLACE(sk_pattern, edges, 72);
PLACE(sk_pattern, diagonal, 80);
PLACE(sk_pattern, stride, 88);
PLACE(sk_pattern, window, 96);
PLACE(sk_pattern, global_blocks, 104);
PLACE(sk_pattern, random_blocks, 112);
PLACE(sk_pattern, extra_edges, 120);
SIZE(sk_pattern, 128);

PLACE(sk_layout_view, size, 0);
PLACE(sk_layout_view, rows, 8);
PLACE(sk_layout_view, cols, 16);
PLACE(sk_layout_view, blocks, 24);
PLACE(sk_layout_view, density, 32);
PLACE(sk_layout_view, crow, 40);
PLACE(sk_layout_view, col, 48);
PLACE(sk_layout_view, digest, 56);
SIZE(sk_layout_view, 64);

PLACE(sk_mixing, minimum, 0);
PLACE(sk_mixing, maximum, 8);
PLACE(sk_mixing, median, 16);
PLACE(sk_mixing, mean, 24);
PLACE(sk_mixing, share, 32);
SIZE(sk_mixing, 40);

PLACE(sk_field, name, 0);
PLACE(sk_field, text, 8);
SIZE(sk_field, 16);

PLACE(sk_field_view, size, 0);
PLACE(sk_field_view, name, 8);
PLACE(sk_field_view, argument, 16);
PLACE(sk_field_view, option, 24);
PLACE(sk_field_view, usual, 32);
PLACE(sk_field_view, help, 40);
PLACE(sk_field_view, is_flag, 48);
SIZE(sk_field_view, 56);

PLACE(sk_options, size, 0);
PLACE(sk_options, block_out, 8);
PLACE(sk_options, block_in, 12);
PLACE(sk_options, batch, 16);
PLACE(sk_options, dtype, 24);
PLACE(sk_options, out_dtype, 32);
PLACE(sk_options, operation, 40);
PLACE(sk_options, math, 48);
PLACE(sk_options, activation_order, 56);
PLACE(sk_options, strict_absent, 64);
PLACE(sk_options, epilogue, 72);
PLACE(sk_options, derivative, 80);
PLACE(sk_options, gates, 88);
PLACE(sk_options, bias_gradient, 92);
PLACE(sk_options, gate_gradient, 96);
PLACE(sk_options, in_features, 104);
PLACE(sk_options, out_features, 112);
PLACE(sk_options, alignment, 120);
PLACE(sk_options, target, 128);
PLACE(sk_options, config, 136);
PLACE(sk_options, tuning, 144);
PLACE(sk_options, tuning_seconds, 152);
PLACE(sk_options, tuning_watch, 160);
PLACE(sk_options, tuning_context, 168);
PLACE(sk_options, attached, 176);
PLACE(sk_options, tiered, 180);
PLACE(sk_options, cache_dir, 184);
PLACE(sk_options, packs, 192);
PLACE(sk_options, require, 200);
PLACE(sk_options, fields, 208);
PLACE(sk_options, field_count, 216);
SIZE(sk_options, 224);

PLACE(sk_operand_view, size, 0);
PLACE(sk_operand_view, name, 8);
PLACE(sk_operand_view, dtype, 16);
PLACE(sk_operand_view, is_written, 24);
PLACE(sk_operand_view, is_added_to, 28);
PLACE(sk_operand_view, is_main, 32);
PLACE(sk_operand_view, is_activation, 36);
PLACE(sk_operand_view, dimensions, 40);
SIZE(sk_operand_view, 48);

PLACE(sk_operand, name, 0);
PLACE(sk_operand, tensor, 8);
SIZE(sk_operand, 16);

PLACE(sk_launch, size, 0);
PLACE(sk_launch, alpha, 8);
PLACE(sk_launch, beta, 16);
PLACE(sk_launch, epsilon, 24);
PLACE(sk_launch, workspace, 32);
PLACE(sk_launch, workspace_size, 40);
PLACE(sk_launch, stream, 48);
PLACE(sk_launch, threads, 56);
PLACE(sk_launch, reserved, 60);
SIZE(sk_launch, 64);

PLACE(sk_kernel_view, size, 0);
PLACE(sk_kernel_view, operation, 8);
PLACE(sk_kernel_view, dtype, 16);
PLACE(sk_kernel_view, out_dtype, 24);
PLACE(sk_kernel_view, activation_order, 32);
PLACE(sk_kernel_view, in_features, 40);
PLACE(sk_kernel_view, out_features, 48);
PLACE(sk_kernel_view, blocks, 56);
PLACE(sk_kernel_view, block_out, 64);
PLACE(sk_kernel_view, block_in, 68);
PLACE(sk_kernel_view, batch, 72);
PLACE(sk_kernel_view, epilogue, 80);
PLACE(sk_kernel_view, derivative, 88);
PLACE(sk_kernel_view, gates, 96);
PLACE(sk_kernel_view, bias_gradient, 100);
PLACE(sk_kernel_view, gate_gradient, 104);
PLACE(sk_kernel_view, target, 112);
PLACE(sk_kernel_view, config, 120);
PLACE(sk_kernel_view, key, 128);
PLACE(sk_kernel_view, source, 136);
PLACE(sk_kernel_view, tier, 144);
PLACE(sk_kernel_view, compile_ms, 152);
SIZE(sk_kernel_view, 160);
#endif
