#include <sparsekiln/compile.h>

#include <filesystem>
#include <future>

#include <doctest/doctest.h>
#include <sparsekiln/patterns.h>

#include "cache/entry.h"
#include "cache/pack.h"
#include "cache/store.h"
#include "compiler/stored_binaries.h"
#include "runtime/build.h"
#include "runtime/request.h"
#include "runtime/stored_binary.h"
#include "tests/runtime/cuda/stub_cubin.h"
#include "tests/runtime/cuda/stub_session.h"
#include "tests/temporary_folder.h"

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

/// A Binary whose code the stub refuses in both forms.
Binary with_broken_code(Binary binary) {
  binary.code[stub::kBrokenMark] = std::byte{1};
  binary.ptx = ".version 8.0\n.target sm_90\nbroken\n";
  return binary;
}

/// A store, and a pack, that hold code which the driver refuses.
struct RefusedCode {
  test::TemporaryFolder folder;
  Options options = options_for("cuda:0");
  cache::Identity identity;

  RefusedCode() {
    options.cache_dir = folder.path() / "store";
    const BuildJob job = job_of(small_layout(), options);
    identity = identity_of(job.problem, job.target, job.plan);
    const Binary bad = with_broken_code(*build(job).binary);
    cache::Store(options.cache_dir).put(identity, serialize_binary(identity, bad));
    cache::write_pack(folder.path() / "a.pack",
                      {{identity.key(), cache::encode(identity, serialize_binary(identity, bad))}});
  }
  std::vector<std::byte> stored() const {
    const auto payload = cache::Store(options.cache_dir).get(identity);
    REQUIRE(payload.has_value());
    return deserialize_binaries(identity, *payload).front().code;
  }
};

TEST_CASE("code that the driver refuses as cubin and as PTX is compiled again and replaced in the store") {
  const StubSession session(true);
  RefusedCode refused;
  const std::vector<std::byte> before = refused.stored();
  on_new_thread([&] {
    const Kernel kernel = compile(small_layout(), refused.options);
    CHECK(kernel.from() == From::compiled);
    CHECK_NOTHROW(launch(kernel));
  });
  CHECK(refused.stored() != before);
  on_new_thread([&] { CHECK(compile(small_layout(), refused.options).from() == From::store); });
}

TEST_CASE("where a pack has code that the driver refuses, the store's is taken, else it is compiled") {
  const StubSession session(true);
  RefusedCode refused;
  refused.options.packs = {refused.folder.path() / "a.pack"};
  for (const From from : {From::compiled, From::store})
    on_new_thread([&] { CHECK(compile(small_layout(), refused.options).from() == from); });
}

TEST_CASE("where a prebuilt kernel is required, refused code is an error and nothing is compiled") {
  const StubSession session(true);
  RefusedCode refused;
  const std::vector<std::byte> before = refused.stored();
  refused.options.packs = {refused.folder.path() / "a.pack"};
  refused.options.require = Require::prebuilt;
  on_new_thread([&] {
    const auto error = error_of([&] { static_cast<void>(compile(small_layout(), refused.options)); });
    REQUIRE(error.has_value());
    CHECK(error->kind() == ErrorKind::driver);
    CHECK(says(error, "refused"));
  });
  CHECK(refused.stored() == before);
}

}  // namespace
}  // namespace sparsekiln
