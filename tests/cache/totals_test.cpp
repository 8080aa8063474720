#include "cache/totals.h"

#include <doctest/doctest.h>

#include "cache/store.h"
#include "processes.h"
#include "scratch_folder.h"

using sparsekiln::cache::append_totals;
using sparsekiln::cache::compact_totals;
using sparsekiln::cache::Counters;
using sparsekiln::cache::Folder;
using sparsekiln::cache::read_totals;
using sparsekiln::cache::Store;
using sparsekiln::cache::sum_totals;

TEST_CASE("lines of counters are added, and other lines are ignored") {
  CHECK(sum_totals("") == Counters{});
  CHECK(sum_totals("1 2 3 4 5\n10 20 30 40 50\n") == Counters{11, 22, 33, 44, 55});
  CHECK(sum_totals("1 2 3 4 5 6\n") == Counters{1, 2, 3, 4, 5});
  for (const char* line : {"\n", "1 2 3 4\n", "1 2 3 4 x\n", "1 2 3 4 5x\n", "-1 2 3 4 5\n", "1  2 3 4 5\n",
                           "1 2 3 4 99999999999999999999\n"}) {
    CAPTURE(line);
    CHECK(sum_totals(line) == Counters{});
    CHECK(sum_totals(std::string("1 1 1 1 1\n") + line + "1 1 1 1 1\n") == Counters{2, 2, 2, 2, 2});
  }
  CHECK(sum_totals("1 1 1 1 1\n2 2 2 2 2") == Counters{1, 1, 1, 1, 1});
}

TEST_CASE("counters are kept across processes, and include those of this one") {
  const ScratchFolder scratch;
  {
    Store store(scratch.path());
    CHECK_FALSE(store.get(sample_identity()).has_value());
    store.put(sample_identity(), payload_of(10));
    CHECK(store.totals() == Counters{.misses = 1, .stores = 1});
  }
  const auto hit = [&] { return Store(scratch.path()).get(sample_identity()) ? 0 : 1; };
  std::vector<pid_t> children;
  for (int n = 0; n < 4; ++n) children.push_back(in_child(hit));
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  Store store(scratch.path());
  CHECK(store.get(sample_identity()).has_value());
  CHECK(store.totals() == Counters{.hits = 5, .misses = 1, .stores = 1});
  CHECK(store.counters() == Counters{.hits = 1});
}

TEST_CASE("the counts of a long-lived process are written from time to time") {
  const ScratchFolder scratch;
  Store store(scratch.path());
  store.put(sample_identity(), payload_of(10));
  for (int n = 0; n < 300; ++n) CHECK(store.get(sample_identity()).has_value());
  CHECK(read_totals(Folder(scratch.path())).hits >= 250);
  CHECK(store.totals().hits == 300);
}

TEST_CASE("a forked child leaves its parent's counters to the parent") {
  const ScratchFolder scratch;
  auto store = std::make_unique<Store>(scratch.path());
  store->put(sample_identity(), payload_of(10));
  store->wait_for_trim();
  CHECK(wait_for(in_child([&] {
          store.reset();
          return 0;
        })) == 0);
  store.reset();
  CHECK(read_totals(Folder(scratch.path())) == Counters{.stores = 1});
}

TEST_CASE("a large file of counters becomes one line with the same sum") {
  const ScratchFolder scratch;
  const Folder folder(scratch.path());
  for (int n = 0; n < 1000; ++n) append_totals(folder, {1, 2, 3, 4, 5});
  CHECK(read_totals(folder) == Counters{1000, 2000, 3000, 4000, 5000});
  compact_totals(folder);
  CHECK(read_file(scratch.path() / "counters") == bytes_of("1000 2000 3000 4000 5000\n"));
}

TEST_CASE("a store that only reads creates no folder for its counters") {
  const ScratchFolder scratch;
  {
    CHECK_FALSE(Store(scratch.path() / "store").get(sample_identity()).has_value());
  }
  CHECK_FALSE(std::filesystem::exists(scratch.path() / "store"));
}

TEST_CASE("a link where the counters should be is not followed") {
  const ScratchFolder scratch;
  write_file(scratch.path() / "precious", bytes_of("precious"));
  std::filesystem::create_symlink("precious", scratch.path() / "counters");
  append_totals(Folder(scratch.path()), {1, 1, 1, 1, 1});
  CHECK(read_totals(Folder(scratch.path())) == Counters{});
  CHECK(read_file(scratch.path() / "precious") == bytes_of("precious"));
}
