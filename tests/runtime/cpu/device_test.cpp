#include <thread>

#include <sparsekiln/error.h>

#include "tests/runtime/cpu/product_fixture.h"

namespace sparsekiln::cpu {
namespace {

TEST_CASE("a binary for another machine is refused by name") {
  Binary binary;
  binary.target = {Target::Kind::cuda, "sm_90", 132};
  CHECK_THROWS_WITH_AS((void)open_device()->load(std::make_shared<Binary>(binary)),
                       doctest::Contains("sm_90:132"), Error);
}

TEST_CASE("an object that is none is refused") {
  Binary binary;
  binary.target = open_device()->target();
  binary.code.resize(100);
  binary.entries.resize(1);
  binary.entries[0].passes = {"product"};
  CHECK_THROWS_AS((void)open_device()->load(std::make_shared<Binary>(binary)), Error);
}

TEST_CASE("a symbol that the object lacks is named") {
  const auto whole =
      build_for(product_of(grid("11"), {32, 32}, 32), open_device()->target(), vector_config(32));
  auto binary = std::make_shared<Binary>(*whole);
  binary->entries[0].passes.push_back("missing");
  CHECK_THROWS_WITH_AS((void)open_device()->load(binary), doctest::Contains("missing"), Error);
}

TEST_CASE("the workspace belongs to the calling thread, and is aligned") {
  const auto binary =
      build_for(product_of(grid("11"), {32, 32}, 32), open_device()->target(), vector_config(32));
  const auto module = open_device()->load(binary);
  void* mine = module->workspace(nullptr, 1000);
  CHECK(module->workspace(nullptr, 500) == mine);
  CHECK(reinterpret_cast<std::uintptr_t>(mine) % 64 == 0);
  void* other = nullptr;
  std::jthread([&] { other = module->workspace(nullptr, 1000); }).join();
  CHECK(other != mine);
}

TEST_CASE("the device says what it is") {
  const auto device = open_device(3);
  CHECK(device->target().workers == 3);
  CHECK(device->target().arch == host_level());
  CHECK(device->description().find("3 threads") != std::string::npos);
}

}  // namespace
}  // namespace sparsekiln::cpu
