#include <string>

#include <doctest/doctest.h>
#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>

namespace sparsekiln {
namespace {

TEST_CASE("every specialization is read back from its name") {
  for (const auto specialization : {Specialization::baked, Specialization::attached, Specialization::tiered})
    CHECK(parse_specialization(name(specialization)) == specialization);
}

TEST_CASE("a specialization that is not known is refused, and the known ones are listed") {
  try {
    (void)parse_specialization("frozen");
    FAIL("it was taken");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("'frozen' is not known: one of baked, attached, tiered") !=
          std::string::npos);
  }
}

TEST_CASE("each of two flags asks for its specialization, and neither for the baked one") {
  CHECK(specialization_of(false, false) == Specialization::baked);
  CHECK(specialization_of(true, false) == Specialization::attached);
  CHECK(specialization_of(false, true) == Specialization::tiered);
}

TEST_CASE("both flags at once are refused") { CHECK_THROWS_AS((void)specialization_of(true, true), Error); }

TEST_CASE("every requirement is read back from its name, and others are refused") {
  for (const auto require : {Require::anything, Require::built, Require::prebuilt})
    CHECK(parse_require(name(require)) == require);
  CHECK_THROWS_AS((void)parse_require("something"), Error);
}

}  // namespace
}  // namespace sparsekiln
