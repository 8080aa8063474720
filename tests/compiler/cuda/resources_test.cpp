#include "compiler/cuda/resources.h"

#include <doctest/doctest.h>

namespace sparsekiln::cuda {
namespace {

TEST_CASE("an entry of two passes takes the most of either, and the code of both") {
  const Resources first = {.registers = 128,
                           .shared_bytes = 1,
                           .stack_bytes = 16,
                           .spill_load_bytes = 2,
                           .spill_store_bytes = 9,
                           .constant_bytes = 3,
                           .code_bytes = 5000};
  const Resources second = {.registers = 32,
                            .shared_bytes = 4096,
                            .stack_bytes = 8,
                            .spill_load_bytes = 7,
                            .spill_store_bytes = 4,
                            .constant_bytes = 3,
                            .code_bytes = 300};
  const Resources both = {.registers = 128,
                          .shared_bytes = 4096,
                          .stack_bytes = 16,
                          .spill_load_bytes = 7,
                          .spill_store_bytes = 9,
                          .constant_bytes = 3,
                          .code_bytes = 5300};
  CHECK(combined(first, second) == both);
  CHECK(combined(second, first) == both);
  CHECK(combined({}, first) == first);
}

}  // namespace
}  // namespace sparsekiln::cuda
