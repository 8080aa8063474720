#include "compiler/cuda/tensor_map_text.h"

#include <set>
#include <string>

#include <doctest/doctest.h>

#include "compiler/cuda/nvrtc_choice.h"
#include "compiler/cuda/template_text.h"
#include "tests/compiler/cuda/need_nvrtc.h"

namespace sparsekiln::cuda {
namespace {

TEST_CASE("an entry brings its tensor maps after the arguments that it had") {
  Entry entry;
  entry.arguments = {Argument::x, Argument::n};
  add_tensor_maps(entry, {{.operand = Argument::x}, {.operand = Argument::w}});
  CHECK(entry.arguments ==
        std::vector<Argument>{Argument::x, Argument::n, Argument::tensor_map, Argument::tensor_map});
  REQUIRE(entry.tensor_maps.size() == 2);
  CHECK(entry.tensor_maps[1].operand == Argument::w);
}

TEST_CASE("a kernel without tensor maps has no text of them") {
  CHECK(declared_tensor_maps(0).empty());
  CHECK(passed_tensor_maps(0).empty());
}

TEST_CASE("a kernel takes tensor maps as parameters of 128 bytes, whose addresses it passes on" *
          need_nvrtc()) {
  std::string text;
  std::set<std::string> written;
  write_template(text, "tensor_map.cuh", written);
  text +=
      "__device__ void prefetch(int, const sparsekiln::TensorMap& a, const sparsekiln::TensorMap& b) {\n"
      "  asm volatile(\"prefetch.tensormap [%0];\" ::\"l\"(&a));\n"
      "  asm volatile(\"prefetch.tensormap [%0];\" ::\"l\"(&b));\n"
      "}\n"
      "extern \"C\" __global__ void copies(int n" +
      declared_tensor_maps(2) + ") { prefetch(n" + passed_tensor_maps(2) + "); }\n";
  const std::string ptx = find_nvrtc()->compile(text, "sm_90").ptx;
  CAPTURE(ptx);
  for (const char* parameter : {"copies_param_1[128]", "copies_param_2[128]"})
    CHECK(ptx.find(std::string(".param .align 128 .b8 ") + parameter) != std::string::npos);
  CHECK(ptx.find(".local") == std::string::npos);  // no copy of a map
}

}  // namespace
}  // namespace sparsekiln::cuda
