#include "compiler/recipe.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "cache/entry.h"
#include "cache/pack.h"
#include "cache/read_only_store.h"
#include "cache/store.h"
#include "runtime/build.h"
#include "runtime/request.h"
#include "runtime/stored_binary.h"
#include "runtime/stored_entry.h"
#include "tests/temporary_folder.h"

namespace sparsekiln {
namespace {

using test::TemporaryFolder;

/// A config whose kernels copy x by tensor maps.
constexpr const char* kWgmma = "wgmma tile_n=128 stages=2 warps=12";

struct Row {
  std::string name;
  Layout layout;
  Options options;
};

/// Kernels whose recipes have all that recipes can have: several entries, workspaces, tensor maps, data.
std::vector<Row> rows() {
  const Layout layout = patterns::random(12, 12, 0.3, 1);
  std::vector<Row> rows{
      {"a product", layout, {.block = {16, 16}, .batch = 24, .target = "sm_80"}},
      {"an attached product",
       layout,
       {.block = {16, 16}, .batch = 24, .target = "sm_80", .specialization = Specialization::attached}},
      {"a dynamic product", layout, {.block = {16, 16}, .batch = Batch::up_to(600), .target = "sm_80"}},
      {"tables as data", patterns::random(96, 96, 0.5, 2), {.block = {8, 8}, .batch = 8, .target = "sm_80"}},
      {"tensor maps",
       patterns::random(8, 8, 0.5, 3),
       {.block = {64, 64},
        .batch = 512,
        .dtype = DType::f16,
        .target = "sm_90",
        .config = parse_config(kWgmma)}},
      {"a gradient of the weight",
       layout,
       {.block = {16, 16}, .batch = 600, .operation = Operation::grad_weight, .target = "sm_80"}},
      {"an attached gradient of the weight",
       layout,
       {.block = {16, 16},
        .batch = 600,
        .operation = Operation::grad_weight,
        .target = "sm_80",
        .specialization = Specialization::attached}},
      {"an attached product of partial blocks",
       layout,
       {.block = {16, 16},
        .batch = 24,
        .in_features = 12 * 16 - 5,
        .alignment = 4,
        .target = "sm_80",
        .specialization = Specialization::attached}},
      {"a normalised product",
       layout,
       {.block = {16, 16}, .batch = 8, .epilogue = parse_epilogue("layer_norm"), .target = "sm_80"}},
  };
#ifdef SPARSEKILN_CPU
  for (const Specialization how : {Specialization::baked, Specialization::attached}) {
    for (const Operation operation : {Operation::forward, Operation::grad_input, Operation::grad_weight})
      rows.push_back({"of the cpu",
                      layout,
                      {.block = {16, 16},
                       .batch = Batch::up_to(64),
                       .operation = operation,
                       .target = "x86-64-v3:3",
                       .specialization = how}});
    rows.push_back({"a convolution of the cpu",
                    patterns::random(2, 9 * 2, 0.6, 4),
                    {.block = {16, 16},
                     .batch = 4,
                     .convolution = parse_convolution("kernel=3x3 padding=1 input=9x9"),
                     .target = "x86-64-v3:3",
                     .specialization = how}});
  }
#endif
  return rows;
}

struct Change {
  std::string name;
  std::function<void(Binary&)> apply;
};

/// Sets a number of a Binary, that `of` gives, to others.
template <class Of>
void add_numbers(std::vector<Change>& changes, const std::string& name, Of of) {
  using Number = std::remove_reference_t<decltype(of(std::declval<Binary&>()))>;
  const auto add = [&](const char* how, auto change) {
    changes.push_back({name + how, [=](Binary& binary) { of(binary) = change(of(binary)); }});
  };
  add(" one more", [](Number number) { return static_cast<Number>(number + 1); });
  add(" one less", [](Number number) { return static_cast<Number>(number - 1); });
  add(" doubled", [](Number number) { return static_cast<Number>(number == 0 ? 16 : 2 * number); });
  add(" 0", [](Number number) { return static_cast<Number>(number == 0 ? 64 : 0); });
  add(" the most", [](Number) { return std::numeric_limits<Number>::max(); });
  add(" negated", [](Number number) { return static_cast<Number>(number == 0 ? -64 : -number); });
}

void add_numbers_of_map(std::vector<Change>& changes, std::size_t entry, std::size_t map) {
  const auto add = [&](const char* name, auto member) {
    add_numbers(changes, name, [=](Binary& b) -> auto& { return b.entries[entry].tensor_maps[map].*member; });
  };
  add("row_length", &TensorMap::row_length);
  add("rows", &TensorMap::rows);
  add("stride", &TensorMap::stride);
  add("box_length", &TensorMap::box_length);
  add("box_rows", &TensorMap::box_rows);
  add("swizzle_bytes", &TensorMap::swizzle_bytes);
  add("interleave", &TensorMap::interleave);
  add("l2_bytes", &TensorMap::l2_bytes);
  add("pair", &TensorMap::pair);
}

void add_numbers_of_entry(std::vector<Change>& changes, const Binary& binary, std::size_t i) {
  const auto add = [&](const char* name, auto member) {
    add_numbers(changes, name, [=](Binary& b) -> auto& { return b.entries[i].*member; });
  };
  add("up_to", &Entry::up_to);
  add("workers", &Entry::workers);
  add("tile_n", &Entry::tile_n);
  add("rows_of_one", &Entry::rows_of_one);
  add("tiles_in_flight", &Entry::tiles_in_flight);
  add("threads", &Entry::threads);
  add("dynamic_shared_bytes", &Entry::dynamic_shared_bytes);
  const auto add_workspace = [&](const char* name, auto member) {
    add_numbers(changes, name, [=](Binary& b) -> auto& { return b.entries[i].workspace.*member; });
  };
  add_workspace("counter_bytes", &Workspace::counter_bytes);
  add_workspace("bytes_per_tile", &Workspace::bytes_per_tile);
  add_workspace("bytes_of_one", &Workspace::bytes_of_one);
  add_workspace("sums_of_one", &Workspace::sums_of_one);
  const auto add_resource = [&](const char* name, auto member) {
    add_numbers(changes, name, [=](Binary& b) -> auto& { return b.entries[i].resources.*member; });
  };
  add_resource("shared_bytes", &Resources::shared_bytes);
  add_resource("registers", &Resources::registers);
  add_resource("code_bytes", &Resources::code_bytes);
  for (const std::size_t dimension : {0, 1})
    add_numbers(changes, "cluster",
                [=](Binary& b) -> auto& { return b.entries[i].attributes.cluster[dimension]; });
  add_numbers(changes, "counters", [=](Binary& b) -> auto& { return b.entries[i].tables.counters; });
  for (std::size_t map = 0; map < binary.entries[i].tensor_maps.size(); ++map)
    add_numbers_of_map(changes, i, map);
  changes.push_back(
      {"a pass twice", [=](Binary& b) { b.entries[i].passes.push_back(b.entries[i].passes.back()); }});
  changes.push_back({"an argument more", [=](Binary& b) { b.entries[i].arguments.push_back(Argument::x); }});
}

std::vector<Change> changes_of(const Binary& binary) {
  std::vector<Change> changes;
  add_numbers(changes, "in_features", [](Binary& b) -> auto& { return b.operands.in_features; });
  add_numbers(changes, "out_features", [](Binary& b) -> auto& { return b.operands.out_features; });
  add_numbers(changes, "blocks", [](Binary& b) -> auto& { return b.operands.blocks; });
  changes.push_back({"packed", [](Binary& b) { b.operands.packed = !b.operands.packed; }});
  for (std::size_t i = 0; i < binary.entries.size(); ++i) add_numbers_of_entry(changes, binary, i);
  changes.push_back({"an entry twice", [](Binary& b) { b.entries.push_back(b.entries.back()); }});
  changes.push_back({"data of nothing", [](Binary& b) { b.data.push_back({"steps_9", {std::byte{1}}}); }});
  if (binary.data.empty()) return changes;
  changes.push_back({"a table that is cut off", [](Binary& b) { b.data.front().bytes.resize(4); }});
  changes.push_back({"a table's number", [](Binary& b) { b.data.back().bytes.front() ^= std::byte{1}; }});
  return changes;
}

TEST_CASE("the recipe that is made without a compiler is the one that was compiled") {
  const TemporaryFolder folder;
  bool has_data = false, has_maps = false;
  for (Row& row : rows()) {
    CAPTURE(row.name);
    row.options.cache_dir = folder.path();
    const BuildJob job = job_of(row.layout, row.options);
    const Binary binary = *build_without_layout(job).binary;
    CHECK(wrong_numbers(binary, job.problem, job.target, job.plan).empty());
    Binary recipe = recipe_of(job.problem, job.target, job.plan);
    recipe.code = binary.code;
    recipe.log = binary.log;
    set_resources(recipe);
    CHECK(recipe.entries == binary.entries);
    CHECK(recipe.data == binary.data);
    CHECK(recipe.operands == binary.operands);
    has_data = has_data || !binary.data.empty();
    has_maps = has_maps || !binary.entries.front().tensor_maps.empty();
  }
  CHECK(has_data);
  CHECK(has_maps);
}

TEST_CASE("no number that a launch relies on may be another than its schedule gives") {
  const TemporaryFolder folder;
  for (Row& row : rows()) {
    row.options.cache_dir = folder.path();
    const BuildJob job = job_of(row.layout, row.options);
    const Binary binary = *build_without_layout(job).binary;
    for (const Change& change : changes_of(binary)) {
      CAPTURE(row.name);
      CAPTURE(change.name);
      Binary changed = binary;
      change.apply(changed);
      if (changed != binary) CHECK_FALSE(wrong_numbers(changed, job.problem, job.target, job.plan).empty());
    }
  }
}

/// A store, and a pack, in which a kernel's numbers were changed, and every checksum holds.
struct ChangedEntry {
  TemporaryFolder folder;
  Layout layout = patterns::random(4, 4, 0.5, 1);
  Options options{.block = {8, 8}, .batch = 8, .target = "sm_80", .cache_dir = folder.path() / "store"};
  std::shared_ptr<const Binary> whole = build(layout, options).binary;
  cache::Identity identity;

  ChangedEntry() {
    const BuildJob job = job_of(layout, options);
    identity = identity_of(job.problem, job.target, job.plan);
    Binary changed = *whole;
    changed.entries.front().workers += 1;
    const std::vector<std::byte> payload = serialize_binary(identity, changed);
    cache::Store(options.cache_dir).put(identity, payload);
    cache::write_pack(folder.path() / "a.pack", {{identity.key(), cache::encode(identity, payload)}});
  }
};

TEST_CASE("an entry of the store whose numbers were changed is compiled again, and replaced") {
  const ChangedEntry entry;
  CHECK_FALSE(find_built(job_of(entry.layout, entry.options)).has_value());
  for (const From from : {From::compiled, From::store}) {
    const Built built = build(entry.layout, entry.options);
    CHECK(built.from == from);
    CHECK(*built.binary == *entry.whole);
  }
}

TEST_CASE("verifying an entry whose numbers were changed finds it where its layout is there") {
  const ChangedEntry entry;
  const auto store = cache::open_read_only_store(entry.options.cache_dir);
  const auto payload = store->get(entry.identity);
  REQUIRE(payload.has_value());
  CHECK_THROWS_AS(check_payload({entry.identity, *payload}, *store), Error);
  const cache::StoredEntry whole{entry.identity, serialize_binary(entry.identity, *entry.whole)};
  CHECK(check_payload(whole, *store));
}

TEST_CASE("an entry of a pack whose numbers were changed is passed over, and a warning says so") {
  ChangedEntry entry;
  entry.options.packs = {entry.folder.path() / "a.pack"};
  entry.options.cache_dir = entry.folder.path() / "another";
  const Built built = build(entry.layout, entry.options);
  CHECK(built.from == From::compiled);
  CHECK(*built.binary == *entry.whole);
  CAPTURE(built.pack_warning);
  for (const char* part : {"a.pack' is passed over", "is damaged", "workers"})
    CHECK(built.pack_warning.find(part) != std::string::npos);
}

TEST_CASE("where a prebuilt kernel is required, one whose numbers were changed is named as damaged") {
  ChangedEntry entry;
  entry.options.packs = {entry.folder.path() / "a.pack"};
  entry.options.require = Require::prebuilt;
  std::string message;
  try {
    static_cast<void>(build(entry.layout, entry.options));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::cache);
    message = error.what();
  }
  CAPTURE(message);
  for (const char* part : {"a.pack) hold it damaged", "workers", "`sparsekiln precompile"})
    CHECK(message.find(part) != std::string::npos);
}

}  // namespace
}  // namespace sparsekiln
