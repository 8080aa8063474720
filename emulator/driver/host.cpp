#include "emulator/driver/host.h"

namespace sparsekiln::driver {

const char* missing_host_features() {
#if defined(__x86_64__)
  // x86-64-v3 of the System V psABI, without what every processor with AVX2 has had.
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2")) return "AVX2";
  if (!__builtin_cpu_supports("fma")) return "FMA";
  if (!__builtin_cpu_supports("bmi")) return "BMI1";
  if (!__builtin_cpu_supports("bmi2")) return "BMI2";
#endif
  return "";
}

}  // namespace sparsekiln::driver
