// Kernels whose launches begin before the launch before them has ended.

#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "compiler/block_runs.h"
#include "compiler/cuda/nvrtc.h"
#include "compiler/cuda/nvrtc_choice.h"
#include "compiler/cuda/sddmm.h"
#include "tests/compiler/cuda/need_nvrtc.h"
#include "tests/compiler/cuda/simt_cases.h"

namespace sparsekiln::cuda {
namespace {

const Target kH100{Target::Kind::cuda, "sm_90", 6};

Problem overlapping_problem(DType dtype, Operation operation = Operation::forward) {
  Problem problem = skewed_problem({32, 32}, 64);
  problem.dtype = problem.out_dtype = dtype;
  problem.operation = operation;
  problem.overlap_launches = true;
  return problem;
}

std::size_t count(std::string_view text, std::string_view wanted) {
  std::size_t found = 0;
  for (std::size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) ++found;
  return found;
}

/// Checks a kernel of one wait: nothing comes before it, in the order of the program, that reads activations
/// or writes, and the next launch may begin only after it.
void check_waits(const Source& source) {
  CHECK(source.entries.front().attributes.overlaps_previous);
  const std::string ptx = find_nvrtc()->compile(source.text, kH100.arch).ptx;
  REQUIRE(count(ptx, "griddepcontrol.wait;") == 1);
  REQUIRE(count(ptx, "griddepcontrol.launch_dependents;") == 1);
  const std::size_t wait = ptx.find("griddepcontrol.wait;");
  CHECK(ptx.find("griddepcontrol.launch_dependents;") > wait);
  const std::string_view before = std::string_view(ptx).substr(0, wait);
  for (const std::string_view touches : {"cp.async", "st.global", "\tatom.", "\tred.", "\tret;"}) {
    CAPTURE(touches);
    CHECK(count(before, touches) == 0);
  }
  CHECK(count(before, "ld.global") == count(before, "ld.global.nc"));
  CHECK(ptx.find("st.global") > wait);
}

Source emit_gradient(const Sddmm& gradient, const Config& config) {
  return emit(gradient, kH100, {{64, config}}, {make_block_runs(gradient, kH100, config)});
}

}  // namespace

TEST_CASE("a product that overlaps waits before it reads x or writes, and fetches the weight before that" *
          need_nvrtc()) {
  struct Product {
    std::string config;
    DType dtype;
    Operation operation = Operation::forward;
  };
  for (const Product& product :
       {Product{"simt tile_n=64 tile_out=4 stages=1 warps=4 split=3", DType::f32},
        Product{"simt tile_n=64 tile_out=4 stages=3 warps=4 split=3 table=global", DType::f32},
        Product{"mma tile_n=64 stages=3 warps=4 split=3", DType::f16},
        Product{"mma tile_n=64 stages=1 warps=4 rows=2 table=global", DType::f16, Operation::grad_input},
        Product{"stream tile_n=32 stages=4 warps=4 split=3", DType::f16}}) {
    CAPTURE(product.config);
    const Problem problem = overlapping_problem(product.dtype, product.operation);
    const Source source = emit_plan(problem, kH100, {{64, parse_config(product.config)}});
    check_waits(source);
    const std::string ptx = find_nvrtc()->compile(source.text, kH100.arch).ptx;
    CHECK(ptx.find("prefetch.global.L2") < ptx.find("griddepcontrol.wait;"));
  }
}

TEST_CASE("a gradient of the weight that overlaps waits before it reads activations or writes" *
          need_nvrtc()) {
  check_waits(emit_gradient(Sddmm(overlapping_problem(DType::f16, Operation::grad_weight)),
                            parse_config("mma tile_n=32 tile_out=0 stages=3 warps=4 rows=2")));
  check_waits(emit_gradient(Sddmm(overlapping_problem(DType::f32, Operation::grad_weight)),
                            parse_config("simt tile_n=16 tile_out=4 stages=3 warps=4 rows=2 table=global")));
}

TEST_CASE("x and y of a kernel that overlaps are not said to be constant while it runs") {
  const Config config = fitting_config({32, 32}, kH100, 64, 1, TableForm::constant);
  Problem problem = overlapping_problem(DType::f32);
  const std::string overlapping = emit_plan(problem, kH100, {{64, config}}).text;
  CHECK(count(overlapping, "const Config0::Element* x, const Config0::Element* __restrict__ w,") == 1);
  CHECK(count(overlapping, "Config0::Output::Element* y,") == 1);
  problem.overlap_launches = false;
  const std::string plain = emit_plan(problem, kH100, {{64, config}}).text;
  CHECK(count(plain, "const Config0::Element* __restrict__ x, const Config0::Element* __restrict__ w,") == 1);
  CHECK(count(plain, "Config0::Output::Element* __restrict__ y,") == 1);
}

TEST_CASE("launches follow one another where that is not asked for, and before sm_90") {
  const Target a100{Target::Kind::cuda, "sm_80", 6};
  Problem problem = overlapping_problem(DType::f32);
  const Config config = fitting_config(problem.block, a100, 64, 2, TableForm::constant);
  const auto overlaps = [&](const Target& target) {
    const Source source = emit_plan(problem, target, {{64, config}});
    const bool says = source.text.find("overlaps = true") != std::string::npos;
    CHECK(says == source.entries.front().attributes.overlaps_previous);
    return says;
  };
  CHECK(overlaps(kH100));
  CHECK_FALSE(overlaps(a100));
  problem.overlap_launches = false;
  CHECK_FALSE(overlaps(kH100));
}

}  // namespace sparsekiln::cuda
