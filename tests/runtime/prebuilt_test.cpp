#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>
#include <sparsekiln/patterns.h>

#include "autotune/plan_distance.h"
#include "cache/entry.h"
#include "cache/pack.h"
#include "compiler/recipe.h"
#include "compiler/stored_binaries.h"
#include "runtime/build.h"
#include "runtime/precompile_command.h"
#include "runtime/request.h"
#include "runtime/stored_binary.h"
#include "runtime/stored_layout.h"
#include "runtime/stored_requests.h"
#include "tests/temporary_folder.h"

namespace sparsekiln {
namespace {

using test::TemporaryFolder;

/// A Binary that says what it is for, with code for something else; `mark` tells them apart.
Binary binary_for(const BuildJob& job, char mark) {
  static const Binary real = [] {
    const TemporaryFolder folder;
    return *build(patterns::random(1, 1, 1, 1),
                  {.block = {8, 8}, .target = "sm_80", .cache_dir = folder.path()})
                .binary;
  }();
  Binary binary = recipe_of(job.problem, job.target, job.plan);
  binary.code = real.code;
  binary.compiler = real.compiler;
  binary.ptx = std::string(1, mark);
  set_resources(binary);
  return binary;
}

void put(cache::PackEntries& entries, const BuildJob& job, char mark = 'c') {
  const cache::Identity identity = identity_of(job.problem, job.target, job.plan);
  entries.emplace(identity.key(), cache::encode(identity, serialize_binary(identity, binary_for(job, mark))));
}

Layout sample_layout() { return patterns::random(4, 4, 0.5, 1); }

Options sample_options(const TemporaryFolder& folder) {
  return {.block = {16, 16}, .batch = 8, .target = "sm_80", .cache_dir = folder.path() / "store"};
}

std::string message_of(const Layout& layout, const Options& options) {
  try {
    static_cast<void>(build(layout, options));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::cache);
    return error.what();
  }
  return "nothing was thrown";
}

TEST_CASE("what a pack holds is taken from it, and the store stays empty") {
  const TemporaryFolder folder;
  Options options = sample_options(folder);
  cache::PackEntries entries;
  put(entries, job_of(sample_layout(), options));
  cache::write_pack(folder.path() / "a.pack", entries);
  options.packs = {folder.path() / "a.pack"};
  for (const Require require : {Require::anything, Require::built, Require::prebuilt}) {
    options.require = require;
    const Built built = build(sample_layout(), options);
    CHECK(built.from == From::pack);
    CHECK(built.binary->ptx == "c");
  }
  CHECK_FALSE(std::filesystem::exists(options.cache_dir));
}

TEST_CASE("what must be built already comes from the store, and is not compiled") {
  const TemporaryFolder folder;
  Options options = sample_options(folder);
  options.require = Require::built;
  const std::string message = message_of(sample_layout(), options);
  CAPTURE(message);
  CHECK(message.find("is built already") != std::string::npos);
  CHECK(message.find(options.cache_dir.string()) != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(options.cache_dir));
  options.require = Require::anything;
  CHECK(build(sample_layout(), options).from == From::compiled);
  options.require = Require::built;
  CHECK(build(sample_layout(), options).from == From::store);
  options.operation = Operation::grad_input;
  CHECK(message_of(sample_layout(), options).find("is built already") != std::string::npos);
  options.specialization = Specialization::tiered;
  CHECK_THROWS_WITH_AS((void)build(sample_layout(), options), doctest::Contains("tiered and built"), Error);
}

TEST_CASE("an entry is taken from the first pack that holds it") {
  const TemporaryFolder folder;
  Options options = sample_options(folder);
  for (const char mark : {'a', 'b'}) {
    cache::PackEntries entries;
    put(entries, job_of(sample_layout(), options), mark);
    cache::write_pack(folder.path() / std::string(1, mark), entries);
  }
  options.packs = {folder.path() / "b", folder.path() / "a"};
  CHECK(build(sample_layout(), options).binary->ptx == "b");
}

TEST_CASE("an entry that is of no use does not hide the good one of the next pack") {
  const TemporaryFolder folder;
  Options options = sample_options(folder);
  const BuildJob job = job_of(sample_layout(), options);
  const cache::Identity identity = identity_of(job.problem, job.target, job.plan);
  cache::PackEntries spoilt;
  spoilt.emplace(identity.key(), cache::encode(identity, std::vector<std::byte>(100)));
  cache::write_pack(folder.path() / "a", spoilt);
  cache::PackEntries good;
  put(good, job, 'b');
  cache::write_pack(folder.path() / "b", good);
  options.packs = {folder.path() / "a", folder.path() / "b"};
  options.require = Require::prebuilt;
  CHECK(build(sample_layout(), options).binary->ptx == "b");

  BuildJob refused = job_of(sample_layout(), options);
  refused.refused = {build(sample_layout(), options).binary};
  CHECK_THROWS_AS((void)build(refused), Error);
  put(spoilt = {}, job, 'c');
  cache::write_pack(folder.path() / "c", spoilt);
  refused.packs.push_back(folder.path() / "c");
  CHECK(build(refused).binary->ptx == "c");
}

TEST_CASE("among the plans that packs hold, the default plan is taken, else the one nearest to it") {
  const TemporaryFolder folder;
  Options options = sample_options(folder);
  const BuildJob chosen = job_of(sample_layout(), options);
  BuildJob near = chosen;
  near.plan.front().config.stages += 1;
  BuildJob far = chosen;
  far.plan.front().config.stages += 3;
  BuildJob other = chosen;
  Config& config = other.plan.front().config;
  config.variant = config.variant == Variant::simt ? Variant::stream : Variant::simt;
  config.tile_out = config.variant == Variant::simt ? 4 : 0;
  config.warps = config.variant == Variant::simt ? 1 : 4;
  options.require = Require::prebuilt;
  cache::PackEntries entries;
  for (const BuildJob& held : {other, far, near, chosen}) {
    put(entries, held);
    cache::write_pack(folder.path() / "a.pack", entries);
    options.packs = {folder.path() / "a.pack"};
    CHECK(job_of(sample_layout(), options).plan == held.plan);
    CHECK(build(sample_layout(), options).binary->plan == held.plan);
  }
}

TEST_CASE("a pinned config is never replaced by another that is held") {
  const TemporaryFolder folder;
  Options options = sample_options(folder);
  cache::PackEntries entries;
  put(entries, job_of(sample_layout(), options));
  cache::write_pack(folder.path() / "a.pack", entries);
  options.packs = {folder.path() / "a.pack"};
  options.require = Require::prebuilt;
  options.config = Config{.tile_n = 8};
  CHECK(message_of(sample_layout(), options).find("--config 'simt tile_n=8") != std::string::npos);
}

TEST_CASE("what is missing is named: its fields, the packs, the nearest entry and the command") {
  const TemporaryFolder folder;
  Options options = sample_options(folder);
  cache::PackEntries entries;
  put(entries, job_of(sample_layout(), options));
  cache::write_pack(folder.path() / "a.pack", entries);
  options.packs = {folder.path() / "a.pack"};
  options.require = Require::prebuilt;
  options.target = "sm_90:7";
  options.operation = Operation::grad_input;
  const std::string message = message_of(sample_layout(), options);
  CAPTURE(message);
  for (const char* part :
       {"a.pack", "operation=grad_input", "target=sm_90:7", "operation forward", "target sm_80:108",
        "`sparsekiln precompile FILE --op grad_input --block 16x16 --batch 8 --arch sm_90:7 -o "})
    CHECK(message.find(part) != std::string::npos);
  options.packs.clear();
  CHECK(message_of(sample_layout(), options).find("no packs are given") != std::string::npos);
}

TEST_CASE("the command has every option that is not as usual, quoted for a shell") {
  Problem problem;
  problem.layout = sample_layout();
  problem.batch = Batch::up_to(64);
  problem.math = Math::tf32;
  problem.strict_absent = true;
  problem.epilogue = parse_epilogue("bias+gelu");
  problem.cut_in_features = 100;
  problem.alignment = 4;
  CHECK(precompile_command(problem, Target::parse("h100"), true, "simt tile_n=8", "it's.npy") ==
        "sparsekiln precompile 'it'\\''s.npy' --batch up-to:64 --math tf32 --strict-absent --epilogue "
        "bias+gelu --alignment 4 --in-features 100 --attached --config 'simt tile_n=8' --arch sm_90:132 "
        "-o kernels.pack");
  CHECK(precompile_command(Problem{}, Target::parse("h100"), false, "", "it's\n\\\x1b.npy")
            .starts_with("sparsekiln precompile $'it\\'s\\x0a\\\\\\x1b.npy' "));
}

TEST_CASE("a missing pack is an error where it was given, and a warning where the environment names it") {
  const TemporaryFolder folder;
  Options options = sample_options(folder);
  cache::PackEntries entries;
  put(entries, job_of(sample_layout(), options));
  cache::write_pack(folder.path() / "a.pack", entries);
  const std::string both = (folder.path() / "none.pack").string() + ":" + (folder.path() / "a.pack").string();
  ::setenv("SPARSEKILN_PACKS", both.c_str(), 1);
  const Built built = build(sample_layout(), options);
  CHECK(built.from == From::pack);
  CHECK(built.pack_warning.find("none.pack") != std::string::npos);
  options.require = Require::prebuilt;
  CHECK(message_of(sample_layout(), options).find("none.pack") != std::string::npos);
  ::unsetenv("SPARSEKILN_PACKS");
  options.require = Require::anything;
  options.packs = {folder.path() / "none.pack"};
  CHECK(message_of(sample_layout(), options).find("none.pack") != std::string::npos);
}

TEST_CASE("distance is 0 for the same plan alone, and a variant counts more than all numbers") {
  const Plan plan{{8, {}}, {64, {.tile_n = 32}}};
  CHECK(distance(plan, plan) == 0);
  Plan numbers = plan;
  for (RangedConfig& range : numbers) range.config = {.tile_n = 4096, .stages = 9, .warps = 64, .split = 64};
  Plan variant = plan;
  variant.front().config.variant = Variant::mma;
  CHECK(distance(plan, numbers) > 0);
  CHECK(distance(plan, variant) > distance(plan, numbers));
  CHECK(distance(plan, variant) == distance(variant, plan));
}

TEST_CASE("a plan reads back as it was written") {
  const Plan plan{{8, {.variant = Variant::stream, .packed = true}}, {64, {.tile_n = 32}}};
  CHECK(parse_plan(to_string(plan)) == plan);
  for (const char* bad : {"simt", "8 simt", "x: simt", "8: simt; 8: simt", "8: simt; ", "8: none"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(static_cast<void>(parse_plan(bad)), Error);
  }
}

TEST_CASE("a stored layout reads back as it was, and no damaged one reads") {
  for (const Layout& layout : {Layout(), sample_layout(), patterns::random(3, 1000, 0.01, 2),
                               Layout::from_mask(2, 0, {}), Layout::from_mask(0, 5, {})}) {
    const auto bytes = serialize_layout(layout);
    CHECK(deserialize_layout(bytes) == layout);
    for (std::size_t size = 0; size < bytes.size(); ++size)
      CHECK_THROWS_AS(static_cast<void>(deserialize_layout(std::span(bytes).first(size))), Error);
  }
}

TEST_CASE("what a store has seen is asked for again just as it was") {
  const TemporaryFolder folder;
  Options options = sample_options(folder);
  options.epilogue = parse_epilogue("scale+bias+silu");
  options.in_features = 60;
  options.target = "sm_80:5";
  const Layout layout = sample_layout();
  static_cast<void>(build(layout, options));
  options.specialization = Specialization::attached;
  options.in_features = 0;
  options.batch = Batch::up_to(16);
  static_cast<void>(build(layout, options));
  options.in_features =
      layout.cols() * options.block.in - 5;  // where features are cut, they are part of the code
  options.out_features = layout.rows() * options.block.out - 3;
  options.alignment = 4;
  static_cast<void>(build(layout, options));
  options.epilogue = {};
  options.operation = Operation::grad_weight;
  static_cast<void>(build(layout, options));
  const StoredRequests seen = stored_requests_in(options.cache_dir);
  CHECK(seen.left_out.empty());
  REQUIRE(seen.kernels.size() == 4);
  for (const StoredRequest& kernel : seen.kernels) {
    CHECK(kernel.current);
    if (kernel.options.specialization == Specialization::baked) CHECK(kernel.layout == layout);
    Options again = kernel.options;
    again.cache_dir = options.cache_dir;
    const BuildJob job = job_of(kernel.layout, again);
    CHECK(job.plan == kernel.plan);
    CHECK(find_built(job).has_value());
  }
}

}  // namespace
}  // namespace sparsekiln
