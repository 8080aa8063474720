#include <sparsekiln/compile.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <latch>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "tests/temporary_folder.h"

namespace sparsekiln {
namespace {

using test::TemporaryFolder;

std::size_t entries_in(const std::filesystem::path& folder) {
  std::size_t entries = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder))
    entries += file.path().extension() == ".entry";
  return entries;
}

TEST_CASE("a Binary that cannot be kept on disk says why, each time it is built") {
  const Layout layout = patterns::random(4, 4, 0.5, 5);
  Options options{.block = {8, 8}, .batch = 8, .target = "sm_80", .cache_dir = "/proc/no/such/folder"};
  for (const From from : {From::compiled, From::store}) {
    const Built built = build(layout, options);
    CHECK(built.from == from);
    CAPTURE(built.cache_warning);
    for (const char* part : {"/proc/no", "No such file or directory", "SPARSEKILN_CACHE_DIR"})
      CHECK(built.cache_warning.find(part) != std::string::npos);
  }
  const TemporaryFolder folder;
  options.cache_dir = folder.path();
  CHECK(build(layout, options).cache_warning.empty());
}

TEST_CASE("building twice compiles once, and the second Binary is the same to the byte") {
  const TemporaryFolder folder;
  const Layout layout = patterns::random(4, 4, 0.5, 1);
  const Options options{.block = {8, 8}, .batch = 8, .target = "sm_80", .cache_dir = folder.path()};
  const Built first = build(layout, options);
  const Built second = build(layout, options);
  CHECK(first.from == From::compiled);
  CHECK(second.from == From::store);
  CHECK(first.key == second.key);
  CHECK(*first.binary == *second.binary);
  CHECK(entries_in(folder.path()) == 2);  // the Binary, and its layout
}

TEST_CASE("the bytes of a Binary do not depend on where and when it was built") {
  const TemporaryFolder here;
  const TemporaryFolder there;
  const Layout layout = patterns::random(4, 4, 0.5, 1);
  for (const char* target : {"sm_80", "sm_90"}) {
    CAPTURE(target);
    Options options{.block = {8, 8}, .batch = 8, .target = target, .cache_dir = here.path()};
    const Built first = build(layout, options);
    options.cache_dir = there.path();
    const Built second = build(layout, options);
    CHECK(second.from == From::compiled);
    CHECK(serialize(*first.binary) == serialize(*second.binary));
  }
}

TEST_CASE("threads that build the same at once compile once") {
  const TemporaryFolder folder;
  const Layout layout = patterns::random(8, 8, 0.5, 2);
  const Options options{.block = {16, 16}, .batch = 8, .target = "sm_80", .cache_dir = folder.path()};
  constexpr int kThreads = 8;
  std::latch start(kThreads);
  std::vector<std::future<Built>> asked;
  for (int thread = 0; thread < kThreads; ++thread)
    asked.push_back(std::async(std::launch::async, [&] {
      start.arrive_and_wait();
      return build(layout, options);
    }));
  std::vector<Built> built;
  for (std::future<Built>& one : asked) built.push_back(one.get());
  int compiled = 0;
  for (const Built& one : built) {
    compiled += one.from == From::compiled;
    CHECK(*one.binary == *built.front().binary);
  }
  CHECK(compiled == 1);
}

TEST_CASE("a config that does not fit is refused, not replaced") {
  const Layout layout = patterns::random(4, 4, 0.5, 1);
  Options options{.block = {8, 8}, .batch = 8, .target = "sm_80"};
  options.config = Config{.variant = Variant::vector};
  CHECK_THROWS_AS((void)build(layout, options), Error);
  options.config = Config{};
  options.batch = Batch::up_to(8);
  CHECK_THROWS_AS((void)build(layout, options), Error);
}

#ifdef SPARSEKILN_CPU
TEST_CASE("compile answers from the compiler, then from memory while a handle lives, then from the store") {
  const TemporaryFolder folder;
  const Layout layout = patterns::random(4, 4, 0.5, 1);
  const Options options{.block = {8, 8}, .batch = 8, .target = "cpu:2", .cache_dir = folder.path()};
  {
    const Kernel first = compile(layout, options);
    const Kernel second = compile(layout, options);
    CHECK(first.from() == From::compiled);
    CHECK(second.from() == From::memory);
    CHECK(first.key() == second.key());
    CHECK(&first.binary() == &second.binary());
  }
  CHECK(compile(layout, options).from() == From::store);
}

TEST_CASE("threads that compile the same at once share one kernel") {
  const TemporaryFolder folder;
  const Layout layout = patterns::random(4, 4, 0.5, 7);
  const Options options{.block = {8, 8}, .batch = 8, .target = "cpu:2", .cache_dir = folder.path()};
  constexpr int kThreads = 8;
  std::latch start(kThreads);
  std::vector<std::future<Kernel>> asked;
  for (int thread = 0; thread < kThreads; ++thread)
    asked.push_back(std::async(std::launch::async, [&] {
      start.arrive_and_wait();
      return compile(layout, options);
    }));
  std::vector<Kernel> kernels;
  for (std::future<Kernel>& one : asked) kernels.push_back(one.get());
  int compiled = 0;
  for (const Kernel& kernel : kernels) {
    compiled += kernel.from() == From::compiled;
    CHECK(&kernel.binary() == &kernels.front().binary());
  }
  CHECK(compiled == 1);
}

TEST_CASE("without a usable cache folder compile still works") {
  const Layout layout = patterns::random(4, 4, 0.5, 3);
  const Options options{.block = {8, 8}, .batch = 8, .target = "cpu:1", .cache_dir = "/proc/no/such/folder"};
  CHECK(compile(layout, options).from() == From::compiled);
  CHECK(compile(layout, options).from() == From::store);  // kept in memory
}
#endif

}  // namespace
}  // namespace sparsekiln
