#include "cache/caps.h"

#include <doctest/doctest.h>

#include "cache/store.h"
#include "environment.h"
#include "scratch_folder.h"

using sparsekiln::cache::Caps;
using sparsekiln::cache::caps_from_environment;
using sparsekiln::cache::parse_amount;
using sparsekiln::cache::Store;

TEST_CASE("an amount is a positive number with at most one letter for a power of 1024") {
  CHECK(parse_amount("1") == 1);
  CHECK(parse_amount("20000") == 20'000);
  CHECK(parse_amount("3K") == 3072);
  CHECK(parse_amount("512M") == 512ull << 20);
  CHECK(parse_amount("2G") == 2ull << 30);
  CHECK(parse_amount("1T") == 1ull << 40);
  CHECK(parse_amount("18446744073709551615") == ~0ull);
  for (const char* nonsense : {"", "0", "0G", "-1", "+1", " 1", "1 ", "M", "1m", "1MB", "1.5G", "1e9", "0x10",
                               "99999999999T", "18446744073709551616"}) {
    CAPTURE(nonsense);
    CHECK_FALSE(parse_amount(nonsense).has_value());
  }
}

TEST_CASE("the caps come from the environment, and are a gibibyte and 20,000 files without it") {
  std::string complaint = "old";
  {
    const Variable bytes("SPARSEKILN_CACHE_MAX_BYTES", nullptr), files("SPARSEKILN_CACHE_MAX_FILES", "");
    CHECK(caps_from_environment(complaint) == Caps{1u << 30, 20'000});
    CHECK(complaint.empty());
  }
  const Variable bytes("SPARSEKILN_CACHE_MAX_BYTES", "512M"), files("SPARSEKILN_CACHE_MAX_FILES", "100");
  CHECK(caps_from_environment(complaint) == Caps{512u << 20, 100});
  CHECK(complaint.empty());
  const ScratchFolder scratch;
  CHECK(Store(scratch.path()).caps() == Caps{512u << 20, 100});
}

TEST_CASE("an invalid cap leaves the default, and is reported once, by name") {
  const Variable bytes("SPARSEKILN_CACHE_MAX_BYTES", "lots"), files("SPARSEKILN_CACHE_MAX_FILES", "0");
  const ScratchFolder scratch;
  std::vector<std::string> warnings;
  Store store(scratch.path(), [&](const std::string& warning) { warnings.push_back(warning); });
  store.put(sample_identity(), payload_of(10));
  CHECK(store.caps() == Caps{});
  REQUIRE(warnings.size() == 1);
  CHECK(warnings.front().find("SPARSEKILN_CACHE_MAX_BYTES is 'lots'") != std::string::npos);
  CHECK(warnings.front().find("SPARSEKILN_CACHE_MAX_FILES is '0'") != std::string::npos);
  CHECK(warnings.front().find("512M") != std::string::npos);
}
