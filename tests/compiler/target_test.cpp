#include <sparsekiln/target.h>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

namespace sparsekiln {
namespace {

TEST_CASE("targets are read from text") {
  CHECK(Target::parse("h100") == Target{Target::Kind::cuda, "sm_90", 132});
  CHECK(Target::parse("sm_90a:7") == Target{Target::Kind::cuda, "sm_90a", 7});
  CHECK(Target::parse("sm_80") == Target{Target::Kind::cuda, "sm_80", 108});
  CHECK(Target::parse("x86-64-v3:2") == Target{Target::Kind::cpu, "x86-64-v3", 2});
  CHECK(Target::parse("sm_90a").compute_capability() == 90);
  CHECK(Target::parse("generic").compute_capability() == 0);
}

TEST_CASE("a target survives its text") {
  for (const char* text : {"h100", "sm_120", "x86-64-v4-bf16:3", "generic:1"}) {
    CAPTURE(text);
    CHECK(Target::parse(Target::parse(text).to_string()) == Target::parse(text));
  }
}

TEST_CASE("targets that make no sense are refused") {
  for (const char* text : {"", "gpu", "sm_", "sm_70", "sm_075", "sm_90b", "sm_80a", "sm_9000",
                           "h100:", "h100:0", "h100:-1", "h100:many", "sm_90:99999999"}) {
    CAPTURE(text);
    CHECK_THROWS_AS((void)Target::parse(text), Error);
  }
}

#ifdef SPARSEKILN_CPU
TEST_CASE("cpu is this host") {
  CHECK(Target::parse("cpu") == Target::host());
  CHECK(Target::parse("cpu:5").workers == 5);
}
#endif

}  // namespace
}  // namespace sparsekiln
