#include "autotune/event.h"

#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

#include "tests/autotune/contests.h"

namespace sparsekiln {
namespace {

using namespace test;
using Kind = Event::Kind;

Event of(Kind kind, std::int32_t config, double us = 0) {
  Event event{.kind = kind, .n = 64, .candidate = {}, .us = us};
  if (kind != Kind::finals) event.candidate.config = config_of(config);
  return event;
}

TEST_CASE("an event survives its line of JSON, whatever its kind") {
  Event settled{
      .kind = Kind::settled, .n = 32, .candidate = full_record().contests[0].candidates[1], .us = 0};
  settled.candidate.samples_us.clear();
  settled.candidate.relative.clear();
  settled.candidate.final_us.clear();
  Event sample = of(Kind::sample, 1, 1.0 / 3);
  sample.relative = 7.0 / 9;
  for (const Event& event : {settled, sample, of(Kind::final, 2, 2.0 / 7), of(Kind::finals, 0)}) {
    const std::string line = to_json(event);
    const Event read = parse_event(line);
    CAPTURE(line);
    CHECK(line.find('\n') == std::string::npos);
    CHECK(read.kind == event.kind);
    CHECK(read.n == event.n);
    CHECK(read.candidate == event.candidate);
    CHECK(read.us == event.us);
    CHECK(read.relative == event.relative);
  }
}

TEST_CASE("lines that are no event are refused") {
  for (const char* line : {"", "{}", "[]", "3", "null", "{\"n\":1}", "{\"n\":-1,\"finals\":true}",
                           "{\"n\":1,\"config\":\"vector\"}", "{\"n\":1,\"config\":\"no\",\"sample_us\":1}",
                           "{\"n\":1,\"candidate\":{}}", "{\"n\":1,\"sample_us\":1}"}) {
    CAPTURE(line);
    CHECK_THROWS_AS((void)parse_event(line), Error);
  }
}

TEST_CASE("a sample of no time is refused: the record that it went into could not be read") {
  for (const Kind kind : {Kind::sample, Kind::final}) {
    const std::string line = to_json(of(kind, 1, 0));
    CAPTURE(line);
    CHECK_THROWS_AS((void)parse_event(line), Error);
  }
}

TEST_CASE("samples go to their candidate in their order") {
  Contest contest = contest_of({untried(0), untried(1)});
  for (const double us : {3.0, 1.0, 2.0}) {
    Event event = of(Kind::sample, 1, us);
    event.relative = us / 4;
    apply(event, contest);
  }
  apply(of(Kind::final, 1, 9), contest);
  CHECK(contest.candidates[1].samples_us == std::vector<double>{3, 1, 2});
  CHECK(contest.candidates[1].relative == std::vector<double>{0.75, 0.25, 0.5});
  CHECK(contest.candidates[1].final_us == std::vector<double>{9});
  CHECK(contest.candidates[0].samples_us.empty());
}

TEST_CASE("new finals make the old ones' times samples") {
  Contest contest = contest_of({measured(0, {1}, {2, 5}), measured(1, {}, {3})});
  contest.candidates[0].relative = {1};
  apply(of(Kind::finals, 0), contest);
  CHECK(contest.candidates[0].samples_us == std::vector<double>{1, 2, 5});
  CHECK(contest.candidates[0].relative == std::vector<double>{1, 1, 1});
  CHECK(contest.candidates[1].samples_us == std::vector<double>{3});
  CHECK(contest.candidates[1].relative == std::vector<double>{1.5});
  for (const Candidate& candidate : contest.candidates) CHECK(candidate.final_us.empty());
}

TEST_CASE("the outcome of a candidate replaces what was known, except for its samples") {
  Contest contest = contest_of({measured(0, {1, 2}, {3})});
  Event event{.kind = Kind::settled, .n = 64, .candidate = failed(0, "a launch failed"), .us = 0};
  event.candidate.compile_ms = 5;
  apply(event, contest);
  const Candidate& candidate = contest.candidates[0];
  CHECK(candidate.outcome == Outcome::failed);
  CHECK(candidate.reason == "a launch failed");
  CHECK(candidate.compile_ms == 5);
  CHECK(candidate.samples_us == std::vector<double>{1, 2});
  CHECK(candidate.final_us == std::vector<double>{3});
}

TEST_CASE("an event of a config that the contest does not have adds it at the end") {
  Contest contest = contest_of({untried(0)});
  apply(of(Kind::sample, 7, 5), contest);
  REQUIRE(contest.candidates.size() == 2);
  CHECK(contest.candidates[1].config == config_of(7));
  CHECK(contest.candidates[1].samples_us == std::vector<double>{5});
}

}  // namespace
}  // namespace sparsekiln
