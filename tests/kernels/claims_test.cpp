#include "tests/kernels/claims.h"

#include <doctest/doctest.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/kernels/suite.h"
#include "tests/temporary_folder.h"

using namespace sparsekiln;
using namespace sparsekiln::test;

namespace {

const auto kLater = std::chrono::system_clock::now() + std::chrono::hours(24);

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE(
    "a part that one process has claimed cannot be claimed by another, whatever both wrote in between") {
  const TemporaryFolder folder;
  Claims one(folder.path() / "claims", kLater);
  Claims other(folder.path() / "claims", kLater);
  CHECK(one.claim("first", "a kernel"));
  CHECK(other.claim("second", "a kernel"));
  one.end("first", "");  // its own line is after lines that it has not read
  CHECK(!one.claim("second", "a kernel"));
  other.end("second", "wrong");
  CHECK(!other.claim("first", "a kernel"));
  CHECK(one.claim("third", "a kernel"));
}

TEST_CASE("a part that has an end in the file of claims cannot be claimed") {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "claims") << R"({"end": "done", "ok": true})"
                                          << "\n{\"cut o\n";
  Claims claims(folder.path() / "claims", kLater);
  CHECK(!claims.claim("done", ""));
  CHECK(claims.claim("cut o", ""));
}

TEST_CASE("nothing can be claimed when the time is over") {
  const TemporaryFolder folder;
  Claims claims(folder.path() / "claims", std::chrono::system_clock::now());
  CHECK(!claims.claim("first", ""));
}

TEST_CASE("all processes together write a plan once, and output that is not UTF-8 does not break a line") {
  const TemporaryFolder folder;
  Claims one(folder.path() / "claims", kLater);
  Claims other(folder.path() / "claims", kLater);
  one.plan("table", 0);
  other.plan("table", 12);
  one.plan("table", 12);
  CHECK(text_of(folder.path() / "claims") ==
        "{\"parts\":0,\"planned\":\"table\"}\n{\"parts\":12,\"planned\":\"table\"}\n");
  CHECK_NOTHROW(one.end("part", "\xff"));
}
