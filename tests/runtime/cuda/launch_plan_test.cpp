#include "runtime/cuda/launch_plan.h"

#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <sparsekiln/error.h>

using namespace sparsekiln;
using cuda::LaunchPlan;

namespace {

template <typename Value>
Value read(const void* from) {
  Value value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename Value>
Value* pointer(std::uintptr_t address) {
  return reinterpret_cast<Value*>(address);
}

}  // namespace

TEST_CASE("each argument points at its value, in the type that kernels take, whatever the order") {
  const Launch launch{pointer<const void>(0x1100),
                      pointer<const void>(0x2200),
                      pointer<void>(0x3300),
                      pointer<void>(0x4400),
                      -7,
                      std::int64_t{1} << 40,
                      std::int64_t{1} << 41};
  const std::vector<Argument> order = {Argument::y_stride, Argument::n, Argument::workspace, Argument::x,
                                       Argument::y,        Argument::w, Argument::x_stride};
  const LaunchPlan plan(order);
  LaunchPlan::Values values(plan, launch);
  void** const made = values.pointers();
  CHECK(read<std::int64_t>(made[0]) == std::int64_t{1} << 41);
  CHECK(read<std::int32_t>(made[1]) == -7);
  CHECK(read<const void*>(made[2]) == launch.workspace);
  CHECK(read<const void*>(made[3]) == launch.x);
  CHECK(read<const void*>(made[4]) == launch.y);
  CHECK(read<const void*>(made[5]) == launch.w);
  CHECK(read<std::int64_t>(made[6]) == std::int64_t{1} << 40);
}

TEST_CASE("an argument may be passed twice, or none at all") {
  const Launch launch{pointer<const void>(0x1100), nullptr, nullptr, nullptr, 5, 0, 0};
  const LaunchPlan twice(std::vector<Argument>{Argument::x, Argument::x});
  LaunchPlan::Values values(twice, launch);
  CHECK(read<const void*>(values.pointers()[0]) == launch.x);
  CHECK(read<const void*>(values.pointers()[1]) == launch.x);
  CHECK_NOTHROW(LaunchPlan({}));
}

TEST_CASE("a recipe that no emitter makes is refused") {
  CHECK_THROWS_AS(LaunchPlan(std::vector<Argument>(LaunchPlan::kMaxArguments + 1, Argument::x)), Error);
  CHECK_THROWS_AS(LaunchPlan(std::vector<Argument>{static_cast<Argument>(99)}), Error);
}
