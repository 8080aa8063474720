#include "compiler/random.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>

using sparsekiln::Bernoulli;
using sparsekiln::draw_below;
using sparsekiln::SplitMix64;

TEST_CASE("SplitMix64 gives the sequence that its authors publish for seed 1234567") {
  SplitMix64 random(1234567);
  CHECK(random() == 6457827717110365317U);
  CHECK(random() == 3203168211198807973U);
  CHECK(random() == 9817491932198370423U);
  CHECK(random() == 4593380528125082431U);
  CHECK(random() == 16408922859458223821U);
}

TEST_CASE("bounded draws stay below the bound and reach every value equally often") {
  SplitMix64 random(1);
  std::array<int, 7> hits{};
  for (int i = 0; i < 70000; ++i) ++hits.at(draw_below(random, 7));
  for (const int count : hits) CHECK(count == doctest::Approx(10000).epsilon(0.04));
  for (int i = 0; i < 100; ++i) CHECK(draw_below(random, 1) == 0);
}

TEST_CASE("bounded draws have no bias where the bound does not divide 2^64") {
  // With bound 3 · 2^62 and no rejection, every third value would come twice as often as the others.
  SplitMix64 random(1);
  constexpr std::uint64_t kBound = std::uint64_t{3} << 62;
  std::array<int, 3> hits{};
  for (int i = 0; i < 30000; ++i) ++hits.at(draw_below(random, kBound) % 3);
  for (const int count : hits) CHECK(count == doctest::Approx(10000).epsilon(0.05));
}

TEST_CASE("a Bernoulli trial of probability 0 never succeeds, of 1 always") {
  SplitMix64 random(1);
  for (int i = 0; i < 1000; ++i) {
    CHECK_FALSE(Bernoulli(0)(random));
    CHECK(Bernoulli(1)(random));
  }
}

TEST_CASE("a Bernoulli trial succeeds with its probability and takes one draw") {
  SplitMix64 random(1);
  SplitMix64 counter(1);
  int hits = 0;
  for (int i = 0; i < 100000; ++i) {
    hits += Bernoulli(0.3)(random);
    static_cast<void>(counter());
  }
  CHECK(hits == doctest::Approx(30000).epsilon(0.02));
  CHECK(random() == counter());
}
