#include <sparsekiln/compile.h>

#include <filesystem>
#include <future>

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

#include "tests/runtime/cuda/stub_session.h"

namespace sparsekiln {
namespace {

const Layout& small_layout() {
  static const Layout layout = patterns::random(4, 4, 0.5, 1);
  return layout;
}

Options options_for(const char* target) {
  return {.block = {8, 8},
          .batch = 8,
          .target = target,
          .cache_dir = std::filesystem::temp_directory_path() / "sparsekiln-stub-store"};
}

/// Memory is the host's on the stub, and launches do nothing.
void launch(const Kernel& kernel) {
  alignas(64) static float read[8 * 32] = {};
  alignas(64) static float written[8 * 32] = {};
  kernel({.x = view(read, DType::f32, 8, 32),
          .w = view(read, DType::f32, small_layout().blocks(), 8, 8),
          .y = view(written, DType::f32, 8, 32)});
}

template <typename Work>
auto on_new_thread(Work work) {
  return std::async(std::launch::async, work).get();
}

TEST_CASE("asking what a device is leaves a context in which kernels can be compiled and launched") {
  const StubSession session(true);
  on_new_thread([] {
    CHECK(resolve_target("cuda").to_string() == "sm_90:132");
    CHECK(resolve_target("auto").to_string() == "sm_90:132");
    for (const char* target : {"cuda", "auto", "sm_90:132"}) {
      CAPTURE(target);
      CHECK_NOTHROW(launch(compile(small_layout(), options_for(target))));
    }
  });
}

TEST_CASE(
    "a thread without a context can launch what it compiled, also where another thread compiled it first") {
  const StubSession session(true);
  for (const char* target : {"cuda", "cuda:0", "auto"}) {
    CAPTURE(target);
    const Kernel first = on_new_thread([&] { return compile(small_layout(), options_for(target)); });
    on_new_thread([&] {
      const Kernel second = compile(small_layout(), options_for(target));
      CHECK(second.from() == From::memory);
      CHECK(&second.binary() == &first.binary());
      CHECK_NOTHROW(launch(second));
    });
  }
}

TEST_CASE("a kernel for a device by number is launched on threads that had no context") {
  const StubSession session(true);
  on_new_thread([] { CHECK_NOTHROW(launch(compile(small_layout(), options_for("cuda:1")))); });
}

}  // namespace
}  // namespace sparsekiln
