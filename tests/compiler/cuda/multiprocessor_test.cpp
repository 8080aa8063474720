#include "compiler/cuda/multiprocessor.h"

#include <doctest/doctest.h>

namespace sparsekiln::cuda {
namespace {

std::int32_t resident(const char* arch, std::int32_t threads, std::int64_t shared_bytes) {
  return resident_ctas({Target::Kind::cuda, arch, 1}, threads, shared_bytes);
}

constexpr std::int64_t kKiB = 1024;

TEST_CASE("each CTA takes the reserved 1 KB beside its own, from sm_80 on") {
  CHECK(resident("sm_75", 32, 32 * kKiB) == 2);
  CHECK(resident("sm_75", 32, 32 * kKiB + 1) == 1);
  for (const char* arch : {"sm_86", "sm_89", "sm_120"}) {
    CAPTURE(arch);
    CHECK(resident(arch, 32, 24 * kKiB) == 4);      // 4 × 25 KB
    CHECK(resident(arch, 32, 24 * kKiB + 1) == 3);  // all of 100 KB were theirs
    CHECK(resident(arch, 32, 33 * kKiB) == 2);      // though 3 × 33 KB is 99 KB
  }
  CHECK(resident("sm_80", 32, 81 * kKiB) == 2);
  CHECK(resident("sm_80", 32, 81 * kKiB + 1) == 1);
  for (const char* arch : {"sm_90", "sm_90a", "sm_100", "sm_103"}) {
    CAPTURE(arch);
    CHECK(resident(arch, 32, 56 * kKiB) == 4);
    CHECK(resident(arch, 32, 56 * kKiB + 1) == 3);
  }
}

TEST_CASE("a CTA alone has all but what is reserved, and no more") {
  CHECK(resident("sm_75", 32, 64 * kKiB) == 1);
  CHECK(resident("sm_75", 32, 64 * kKiB + 1) == 0);
  CHECK(resident("sm_86", 32, 99 * kKiB) == 1);
  CHECK(resident("sm_86", 32, 99 * kKiB + 1) == 0);
  CHECK(resident("sm_90", 32, 227 * kKiB) == 1);
  CHECK(resident("sm_90", 32, 227 * kKiB + 1) == 0);
}

TEST_CASE("threads and the number of CTAs bound it too") {
  CHECK(resident("sm_75", 256, 0) == 4);
  CHECK(resident("sm_86", 256, 0) == 6);
  CHECK(resident("sm_90", 256, 0) == 8);
  CHECK(resident("sm_75", 32, 0) == 16);
  CHECK(resident("sm_86", 32, 0) == 16);
  CHECK(resident("sm_89", 32, 0) == 24);
  CHECK(resident("sm_120", 32, 0) == 24);
  CHECK(resident("sm_90", 32, 0) == 32);
}

}  // namespace
}  // namespace sparsekiln::cuda
