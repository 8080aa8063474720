// A store and packs that machines with drivers of different ages share: each gets code that its driver loads.

#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/patterns.h>

#include "cache/entry.h"
#include "cache/pack.h"
#include "cache/store.h"
#include "compiler/stored_binaries.h"
#include "runtime/build.h"
#include "runtime/request.h"
#include "runtime/stored_binary.h"
#include "tests/compiler/cuda/fake_nvrtc.h"
#include "tests/compiler/cuda/need_nvrtc.h"
#include "tests/runtime/cuda/stub_session.h"

namespace sparsekiln {
namespace {

/// A machine whose driver is of a version, in front of a store in a folder.
struct Machine {
  StubSession session{true};
  explicit Machine(int driver) { stub::set_version(driver); }

  static Options options(const test::TemporaryFolder& shared) {
    return {.block = {8, 8}, .batch = 8, .target = "sm_90", .cache_dir = shared.path() / "store"};
  }
  static Layout layout() { return patterns::random(4, 4, 0.5, 1); }
  static Built build(const test::TemporaryFolder& shared) {
    return sparsekiln::build(layout(), options(shared));
  }
};

cache::Identity identity_in(const test::TemporaryFolder& shared) {
  const BuildJob job = job_of(Machine::layout(), Machine::options(shared));
  return identity_of(job.problem, job.target, job.plan);
}

std::vector<int> versions_in(const test::TemporaryFolder& shared) {
  const auto payload = cache::Store(shared.path() / "store").get(identity_in(shared));
  return payload ? stored_versions(*payload) : std::vector<int>{};
}

/// A pack with what the store has.
std::filesystem::path pack_of(const test::TemporaryFolder& shared) {
  const cache::Identity identity = identity_in(shared);
  const auto payload = cache::Store(shared.path() / "store").get(identity);
  REQUIRE(payload.has_value());
  cache::write_pack(shared.path() / "a.pack", {{identity.key(), cache::encode(identity, *payload)}});
  return shared.path() / "a.pack";
}

TEST_CASE("machines with drivers of two majors share a store, and each finds what its driver loads" *
          cuda::need_nvrtc()) {
  const test::FakeNvrtcs nvrtcs;
  nvrtcs.add("12.9");
  nvrtcs.add("13.0");
  const test::TemporaryFolder shared;
  struct Row {
    int driver;
    From from;
    const char* compiler;
  };
  for (const Row& row : {Row{13000, From::compiled, "NVRTC 13.0"}, Row{12090, From::compiled, "NVRTC 12.9"},
                         Row{13010, From::store, "NVRTC 13.0"}, Row{12090, From::store, "NVRTC 12.9"},
                         Row{12040, From::store, "NVRTC 12.9"}, Row{13000, From::store, "NVRTC 13.0"}}) {
    CAPTURE(row.driver);
    const Machine machine(row.driver);
    const Built built = Machine::build(shared);
    CHECK(built.from == row.from);
    CHECK(built.binary->compiler == row.compiler);
  }
  CHECK(versions_in(shared) == std::vector<int>{13000, 12090});
}

TEST_CASE("a pack with Binaries of two majors serves drivers of both, and no NVRTC is asked" *
          cuda::need_nvrtc()) {
  const test::TemporaryFolder shared;
  std::filesystem::path pack;
  {
    const test::FakeNvrtcs nvrtcs;
    nvrtcs.add("12.9");
    nvrtcs.add("13.0");
    for (const int driver : {13000, 12090}) {
      const Machine machine(driver);
      static_cast<void>(Machine::build(shared));
    }
    pack = pack_of(shared);
  }
  const test::FakeNvrtcs none;
  for (const auto& [driver, compiler] : {std::pair(12040, "NVRTC 12.9"), std::pair(13000, "NVRTC 13.0")}) {
    CAPTURE(driver);
    const Machine machine(driver);
    Options options = Machine::options(shared);
    options.packs = {pack};
    options.require = Require::prebuilt;
    const Built built = build(Machine::layout(), options);
    CHECK(built.from == From::pack);
    CHECK(built.binary->compiler == compiler);
  }
}

TEST_CASE(
    "a pack that only a newer driver loads is passed over, and where it is required the error says why" *
    cuda::need_nvrtc()) {
  const test::FakeNvrtcs nvrtcs;
  nvrtcs.add("13.0");
  const test::TemporaryFolder shared;
  std::filesystem::path pack;
  {
    const Machine machine(13000);
    static_cast<void>(Machine::build(shared));
    pack = pack_of(shared);
  }
  const Machine machine(12040);
  Options options = Machine::options(shared);
  options.packs = {pack};
  options.require = Require::prebuilt;
  const auto error = error_of([&] { static_cast<void>(build(Machine::layout(), options)); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::cache);
  CHECK(says(error, "hold it compiled by NVRTC 13.0, whose code"));
  CHECK(says(error, "(CUDA 12.4)") != says(error, "a driver for CUDA 12.4"));
  CHECK(says(error, "NVRTC 12.0 to 12.4"));
  CHECK(says(error, "a driver of release 580 or later"));
  CHECK(says(error, "--driver 12.4 -o kernels.pack` makes it"));
  nvrtcs.add("12.4");
  options.require = Require::anything;
  const Built built = build(Machine::layout(), options);
  CHECK(built.from == From::compiled);
  CHECK(built.binary->compiler == "NVRTC 12.4");
}

TEST_CASE("the emulator takes what any NVRTC has made, whatever this machine's driver is" *
          cuda::need_nvrtc()) {
  const test::FakeNvrtcs nvrtcs;
  nvrtcs.add("13.0");
  const test::TemporaryFolder shared;
  const Machine machine(12040);
  Options options = Machine::options(shared);
  CHECK(error_of([&] { static_cast<void>(build(Machine::layout(), options)); }).has_value());
  options.target = "emulated:sm_90";
  CHECK(build(Machine::layout(), options).binary->compiler == "NVRTC 13.0");
}

/// What the store has for an identity whose Binary of 12.9 the device has refused.
std::vector<int> left_after_refusal(int driver) {
  const test::FakeNvrtcs nvrtcs;
  nvrtcs.add("12.4");
  const test::TemporaryFolder shared;
  const Machine machine(driver);
  BuildJob job = job_of(Machine::layout(), Machine::options(shared));
  Binary other = *build(job).binary;
  other.compiler = "NVRTC 12.9";
  other.code.push_back(std::byte{0});
  cache::Store(shared.path() / "store")
      .put(identity_in(shared), serialize_binary(identity_in(shared), other));
  const Built found = build(job);
  REQUIRE(found.from == From::store);
  job.refused.push_back(found.binary);
  CHECK(build(job).binary->compiler == "NVRTC 12.4");
  return versions_in(shared);
}

TEST_CASE("refused code stays in the store for newer drivers, and goes where this one should have loaded it" *
          cuda::need_nvrtc()) {
  CHECK(left_after_refusal(12040) == std::vector<int>{12090, 12040});
  CHECK(left_after_refusal(12090) == std::vector<int>{12040});
}

}  // namespace
}  // namespace sparsekiln
