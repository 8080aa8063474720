#include "compiler/stored_binaries.h"

#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

namespace sparsekiln {
namespace {

const Digest kOwner = Digest::of("an identity");

Binary made_by(const std::string& compiler, char code = 'c') {
  Binary binary;
  binary.target = {Target::Kind::cuda, "sm_90", 132};
  Entry entry;
  entry.up_to = 64;
  entry.passes = {"forward"};
  binary.entries = {entry};
  binary.operands.batch = Batch(64);
  binary.compiler = compiler;
  binary.code = {static_cast<std::byte>(code)};
  return binary;
}

/// The payload to which each of these was added in turn, as the store adds them.
std::vector<std::byte> payload_of(const std::vector<Binary>& binaries) {
  std::vector<std::byte> payload;
  for (const Binary& binary : binaries)
    payload = payload.empty() ? store_binary(kOwner, binary)
                              : store_binary(kOwner, binary, stored_binaries(payload));
  return payload;
}

std::vector<std::string> compilers(const std::vector<StoredBinary>& stored) {
  std::vector<std::string> names;
  for (const StoredBinary& one : stored) names.push_back(deserialize(one).compiler);
  return names;
}

TEST_CASE("Binaries of several versions of NVRTC read back, the newest first, in whatever order they came") {
  using Names = std::vector<std::string>;
  const auto payload = payload_of({made_by("NVRTC 12.9"), made_by("NVRTC 13.0"), made_by("NVRTC 12.4")});
  CHECK(compilers(stored_binaries(payload)) == Names{"NVRTC 13.0", "NVRTC 12.9", "NVRTC 12.4"});
  CHECK(payload == payload_of({made_by("NVRTC 12.4"), made_by("NVRTC 12.9"), made_by("NVRTC 13.0")}));
  CHECK(stored_versions(std::span(payload).first(96)) == std::vector<int>{13000, 12090, 12040});
}

TEST_CASE("a Binary takes the place of that which the same NVRTC, or LLVM, has made before") {
  for (const char* compiler : {"NVRTC 13.0", "LLVM 19.1.7"}) {
    const auto payload = payload_of({made_by(compiler, 'a'), made_by(compiler, 'b')});
    REQUIRE(stored_binaries(payload).size() == 1);
    CHECK(deserialize(stored_binaries(payload).front()) == made_by(compiler, 'b'));
  }
}

TEST_CASE("each driver gets what it loads: with its PTX rather than without, then the newest") {
  using Names = std::vector<std::string>;
  const auto payload = payload_of({made_by("NVRTC 12.9"), made_by("NVRTC 13.1"), made_by("NVRTC 12.4")});
  const auto for_driver = [&](int version) {
    return compilers(loadable(stored_binaries(payload), {version}));
  };
  CHECK(for_driver(13010) == Names{"NVRTC 13.1", "NVRTC 12.9", "NVRTC 12.4"});
  CHECK(for_driver(13000) == Names{"NVRTC 12.9", "NVRTC 12.4", "NVRTC 13.1"});
  CHECK(for_driver(12040) == Names{"NVRTC 12.4", "NVRTC 12.9"});
  CHECK(for_driver(11080).empty());
  CHECK(for_driver(0).front() == "NVRTC 13.1");
}

TEST_CASE("a payload says which identity it was made for, whatever is added to it") {
  CHECK(made_for(payload_of({made_by("NVRTC 12.9")})) == kOwner);
  CHECK(made_for(payload_of({made_by("NVRTC 12.9"), made_by("NVRTC 13.0")})) == kOwner);
  const auto payload = payload_of({made_by("NVRTC 12.9")});
  CHECK_THROWS_AS((void)made_for(std::span(payload).first(12)), Error);
}

TEST_CASE("a payload that is cut, or goes on, is refused") {
  std::vector<std::byte> payload = payload_of({made_by("NVRTC 12.9"), made_by("NVRTC 13.0")});
  for (std::size_t size = 0; size < payload.size(); ++size) {
    CAPTURE(size);
    CHECK_THROWS_AS((void)deserialize_all(std::span(payload).first(size)), Error);
  }
  payload.push_back(std::byte{0});
  CHECK_THROWS_AS((void)stored_binaries(payload), Error);
}

TEST_CASE("one Binary without rows, as older versions stored it, is refused") {
  CHECK_THROWS_AS((void)stored_binaries(serialize(made_by("NVRTC 13.0"))), Error);
}

TEST_CASE("a Binary that another NVRTC made than its row says is refused") {
  const std::vector<std::byte> bytes = serialize(made_by("NVRTC 13.0"));
  const StoredBinary lying{12040, bytes};
  CHECK_THROWS_AS((void)deserialize_all(store_binaries(kOwner, std::span(&lying, 1))), Error);
}

}  // namespace
}  // namespace sparsekiln
