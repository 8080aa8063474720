#include "runtime/stored_binary.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>

#include "cache/entry.h"
#include "cache/pack.h"
#include "cache/store.h"
#include "runtime/build.h"
#include "runtime/request.h"
#include "runtime/stored_entry.h"
#include "runtime/stored_layout.h"
#include "tests/temporary_folder.h"

namespace sparsekiln {
namespace {

using test::TemporaryFolder;

/// What keeps a payload from being read under an identity; empty where nothing does.
std::string refusal(const cache::Identity& identity, const std::vector<std::byte>& payload) {
  try {
    static_cast<void>(deserialize_binaries(identity, payload));
    return {};
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::cache);
    return error.what();
  }
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

/// Two layouts of one size, whose Binaries say the same of themselves, and the entries that a store has for
/// them.
struct TwoKernels {
  explicit TwoKernels(const std::filesystem::path& folder) : store(folder) {
    for (const std::vector<std::uint8_t>& mask : {std::vector<std::uint8_t>{1, 0, 0, 1}, {0, 1, 1, 0}}) {
      layouts.push_back(Layout::from_mask(2, 2, mask));
      const BuildJob job = job_of(layouts.back(), options(folder));
      identities.push_back(identity_of(job.problem, job.target, job.plan));
      binaries.push_back(build(job).binary);
      payloads.push_back(*store.get(identities.back()));
    }
  }
  static Options options(const std::filesystem::path& folder) {
    return {.block = {8, 8}, .batch = 8, .target = "sm_80", .cache_dir = folder};
  }
  void exchange() {
    store.put(identities[0], payloads[1]);
    store.put(identities[1], payloads[0]);
  }
  /// A pack in which each entry has the other's payload, and every checksum holds.
  void write_exchanged(const std::filesystem::path& file) const {
    cache::write_pack(file, {{identities[0].key(), cache::encode(identities[0], payloads[1])},
                             {identities[1].key(), cache::encode(identities[1], payloads[0])}});
  }

  cache::Store store;
  std::vector<Layout> layouts;
  std::vector<cache::Identity> identities;
  std::vector<std::shared_ptr<const Binary>> binaries;
  std::vector<std::vector<std::byte>> payloads;
};

TEST_CASE("a Binary is read under the identity that it was stored for, and under no other") {
  const TemporaryFolder folder;
  const TwoKernels two(folder.path());
  REQUIRE(two.identities[0] != two.identities[1]);
  REQUIRE(two.binaries[0]->operands == two.binaries[1]->operands);  // so that only the key tells them apart
  CHECK(deserialize_binaries(two.identities[0], two.payloads[0]).front() == *two.binaries[0]);
  const std::string wrong = refusal(two.identities[0], two.payloads[1]);
  CHECK(has(wrong, "made for the entry " + two.identities[1].key().hex()));
  CHECK(has(wrong, "is that of " + two.identities[0].key().hex()));
}

TEST_CASE("a Binary that is damaged hides no other of its entry, and one of another entry is never used") {
  const TemporaryFolder folder;
  const TwoKernels two(folder.path());
  const auto any = [](const Binary&) { return true; };
  const std::vector<std::byte> damaged(40);
  const std::vector<std::byte> whole = serialize(*two.binaries[0]);
  const int version = nvrtc_version(*two.binaries[0]);
  const std::vector<StoredBinary> rows{{version + 10, damaged}, {version, whole}};
  std::set<int> versions;
  const auto best =
      best_binary(two.identities[0], store_binaries(two.identities[0].key(), rows), {}, any, &versions);
  REQUIRE(best != nullptr);
  CHECK(*best == *two.binaries[0]);
  CHECK(versions == std::set<int>{version, version + 10});
  CHECK(best_binary(two.identities[0], two.payloads[1], {}, any) == nullptr);
}

TEST_CASE("a Binary that computes something else than its entry says is refused whatever key it has") {
  const TemporaryFolder folder;
  const TwoKernels two(folder.path());
  const cache::Identity& identity = two.identities[0];
  const auto refused_with = [&](const std::function<void(Binary&)>& change) {
    Binary other = *two.binaries[0];
    change(other);
    return refusal(identity, serialize_binary(identity, other));
  };
  CHECK(refused_with([](Binary&) {}).empty());
  CHECK(has(refused_with([](Binary& b) { b.operands.operation = Operation::grad_input; }),
            "operation is grad_input"));
  CHECK(has(refused_with([](Binary& b) { b.operands.batch = Batch(7); }), "batch is 7, and the entry's 8"));
  CHECK(has(refused_with([](Binary& b) { b.operands.dtype = DType::f16; }), "dtype is f16"));
  CHECK(has(refused_with([](Binary& b) { b.operands.block.in = 16; }), "block is 8x16"));
  CHECK(has(refused_with([](Binary& b) { b.operands.epilogue.bias = true; }), "epilogue is bias"));
  const std::string convolution = "kernel=3 padding=1 input=9";
  CHECK(has(refused_with([&](Binary& b) { b.operands.convolution = parse_convolution(convolution); }),
            "its entry does not say its convolution"));
  CHECK(has(refused_with([](Binary& b) { b.target.arch = "sm_90"; }), "target is sm_90"));
  CHECK(has(refused_with([](Binary& b) { b.plan.front().config.stages += 1; }), "plan is "));
}

TEST_CASE("a Binary of a linear layer is refused under the identity of a convolution") {
  const TemporaryFolder folder;
  const TwoKernels two(folder.path());
  cache::Identity other = two.identities[0];
  other.add("convolution", "kernel=3 padding=1 input=9");
  CHECK(has(refusal(other, serialize_binary(other, *two.binaries[0])),
            "the entry says its convolution, kernel=3 padding=1 input=9"));
}

TEST_CASE("a payload cut anywhere in its key is damaged") {
  const TemporaryFolder folder;
  const TwoKernels two(folder.path());
  for (std::size_t bytes = 0; bytes < 20; ++bytes) {
    const std::vector<std::byte> cut(two.payloads[0].begin(), two.payloads[0].begin() + bytes);
    CHECK_FALSE(refusal(two.identities[0], cut).empty());
  }
}

TEST_CASE("payloads that were exchanged in a store are misses, and are replaced") {
  const TemporaryFolder folder;
  TwoKernels two(folder.path());
  two.exchange();
  for (const From from : {From::compiled, From::store})
    for (std::size_t i = 0; i < 2; ++i) {
      const Built built = build(two.layouts[i], TwoKernels::options(folder.path()));
      CHECK(built.from == from);
      CHECK(*built.binary == *two.binaries[i]);
    }
  CHECK(*two.store.get(two.identities[0]) == two.payloads[0]);
}

TEST_CASE("payloads that were exchanged in a pack are misses, also where nothing else may serve") {
  const TemporaryFolder folder;
  const TwoKernels two(folder.path() / "store");
  two.write_exchanged(folder.path() / "a.pack");
  Options options = TwoKernels::options(folder.path() / "another");
  options.packs = {folder.path() / "a.pack"};
  const Built built = build(two.layouts[0], options);
  CHECK(built.from == From::compiled);
  CHECK(*built.binary == *two.binaries[0]);
  options.require = Require::prebuilt;
  CHECK_THROWS_AS((void)build(two.layouts[1], options), Error);
}

TEST_CASE("whether a payload is what its identity says is checked for every kind that is known") {
  const TemporaryFolder folder;
  const TwoKernels two(folder.path());
  const auto store = cache::open_read_only_store(folder.path());
  CHECK(check_payload({two.identities[0], two.payloads[0]}, *store));
  CHECK_THROWS_AS(check_payload({two.identities[0], two.payloads[1]}, *store), Error);
  const auto layout_of = [&](std::size_t i) { return layout_identity(two.layouts[i].digest().hex()); };
  CHECK(check_payload({layout_of(0), serialize_layout(two.layouts[0])}, *store));
  CHECK_THROWS_AS(check_payload({layout_of(0), serialize_layout(two.layouts[1])}, *store), Error);
  cache::Identity foreign;
  CHECK_FALSE(check_payload({foreign, {}}, *store));
  foreign.add("what", "binary").add("compiler", "another");
  CHECK_FALSE(check_payload({foreign, two.payloads[0]}, *store));
}

}  // namespace
}  // namespace sparsekiln
