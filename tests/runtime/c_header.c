#include <sparsekiln/c.h>

/* The header is C: this file is compiled as that. */
int header_is_c(void);
int header_is_c(void) {
  sk_options options;
  sk_options_init(&options);
  return options.size == sizeof(sk_options) && sizeof(sk_operands) > 14 * sizeof(const DLTensor*);
}
