#include "cache/failure.h"

#include <string>

#include <doctest/doctest.h>

#include "cache/entry.h"
#include "cache/store.h"
#include "scratch_folder.h"

using namespace sparsekiln;
using namespace sparsekiln::cache;
using namespace std::chrono_literals;

namespace {

const Stamp kNow{std::chrono::seconds(1'800'000'000)};

Failure sample() { return {"no such register", "line 3: %r99", "source\n=7 ", "NVRTC 13.0", kNow}; }

/// A store whose compiler refuses everything, and counts.
struct Refusing {
  ScratchFolder scratch;
  int compiles = 0;
  std::string toolchain = "NVRTC 13.0";
  ErrorKind kind = ErrorKind::compile;
  std::string log = "line 3: %r99";

  /// What a new process gets.
  Error ask() {
    Store store(scratch.path());
    try {
      store.get_or_make(
          sample_identity(), [](auto) { return true; },
          [&]() -> std::vector<std::byte> {
            ++compiles;
            throw Error(kind, "no such register", log, "the source");
          },
          [&] { return toolchain; });
    } catch (const Error& error) {
      return error;
    }
    FAIL("there was no error");
    return Error(ErrorKind::internal, "");
  }
};

bool says(const Error& error, const char* words) {
  return std::string(error.what()).find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("a failure is read back unchanged") {
  const auto again = decode_failure(encode(sample()));
  REQUIRE(again.has_value());
  CHECK(again->message == sample().message);
  CHECK(again->log == sample().log);
  CHECK(again->source == sample().source);
  CHECK(again->toolchain == sample().toolchain);
  CHECK(again->made == sample().made);
}

TEST_CASE("a failure shortened to any length, or with any byte changed, is read within its bounds") {
  const auto bytes = encode(sample());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    CAPTURE(i);
    CHECK_FALSE(decode_failure(std::span(bytes).first(i)).has_value());
    auto flipped = bytes;
    flipped[i] ^= std::byte{0x11};
    if (const auto read = decode_failure(flipped)) CHECK(encode(*read) == flipped);
  }
}

TEST_CASE("a failure is valid for an hour, for the same compiler, and not if its time is in the future") {
  const Failure failure = sample();
  CHECK(holds(failure, "NVRTC 13.0", kNow));
  CHECK(holds(failure, "NVRTC 13.0", kNow + 59min));
  CHECK_FALSE(holds(failure, "NVRTC 13.0", kNow + 1h));
  CHECK_FALSE(holds(failure, "NVRTC 13.1", kNow));
  CHECK_FALSE(holds(failure, "", kNow));
  CHECK_FALSE(holds(failure, "NVRTC 13.0", kNow - 1s));
}

TEST_CASE("a compile that failed is not tried again, and the error says that and what to do") {
  Refusing refusing;
  const Error first = refusing.ask();
  CHECK_FALSE(says(first, "remembered"));
  const Error second = refusing.ask();
  CHECK(refusing.compiles == 1);
  CHECK(second.kind() == ErrorKind::compile);
  CHECK(says(second, "no such register"));
  CHECK(says(second, "remembered"));
  CHECK(says(second, "sparsekiln cache clear --failed"));
  CHECK(second.log() == "line 3: %r99");
  CHECK(second.source() == "the source");
  // Told again and again, it does not grow.
  CHECK(std::string(refusing.ask().what()).size() == std::string(second.what()).size());
  CHECK(files_with(refusing.scratch.path(), ".failed").size() == 1);
}

TEST_CASE("another compiler tries again, and its result is used") {
  Refusing refusing;
  static_cast<void>(refusing.ask());
  refusing.toolchain = "NVRTC 13.1";
  static_cast<void>(refusing.ask());
  CHECK(refusing.compiles == 2);
  Store store(refusing.scratch.path());
  const auto accept = [](auto) { return true; };
  const auto got = store.get_or_make(
      sample_identity(), accept, [] { return payload_of(10); }, [] { return std::string("NVRTC 13.2"); });
  CHECK(got.made);
  const auto again = store.get_or_make(
      sample_identity(), accept, [] { return payload_of(10); }, [] { return std::string("NVRTC 13.1"); });
  CHECK_FALSE(again.made);
}

TEST_CASE("errors of the machine, and those of a missing compiler, are not remembered") {
  Refusing refusing;
  SUBCASE("of the driver") { refusing.kind = ErrorKind::driver; }
  SUBCASE("of this library") { refusing.kind = ErrorKind::internal; }
  SUBCASE("without a log, since the compiler has said nothing") { refusing.log.clear(); }
  SUBCASE("of an unknown compiler") { refusing.toolchain.clear(); }
  static_cast<void>(refusing.ask());
  static_cast<void>(refusing.ask());
  CHECK(refusing.compiles == 2);
  CHECK(files_with(refusing.scratch.path(), ".failed").empty());
}

TEST_CASE("a failure that is too old, from the future or damaged on disk is tried again") {
  Refusing refusing;
  static_cast<void>(refusing.ask());
  const auto files = files_with(refusing.scratch.path(), ".failed");
  REQUIRE(files.size() == 1);
  Failure failure{"old news", "log", "source", refusing.toolchain, WallClock::now()};
  SUBCASE("too old") { failure.made -= 2h; }
  SUBCASE("from the future") { failure.made += 2h; }
  write_file(files.front(), encode(sample_identity(), encode(failure)));
  SUBCASE("damaged") { write_file(files.front(), bytes_of("garbage")); }
  SUBCASE("of another identity") { write_file(files.front(), encode(sample_identity("9"), encode(failure))); }
  SUBCASE("not a failure") { write_file(files.front(), encode(sample_identity(), payload_of(100))); }
  CHECK_FALSE(says(refusing.ask(), "old news"));
  CHECK(refusing.compiles == 2);
}

TEST_CASE("a store without a folder remembers no failure, and throws what was thrown") {
  Refusing refusing;
  write_file(refusing.scratch.path() / "file", {});
  Store store(refusing.scratch.path() / "file");
  for (int time = 0; time < 2; ++time)
    CHECK_THROWS_WITH_AS(
        store.get_or_make(
            sample_identity(), [](auto) { return true; },
            []() -> std::vector<std::byte> { throw Error(ErrorKind::compile, "refused", "log", "source"); },
            [] { return std::string("NVRTC 13.0"); }),
        "refused", Error);
}
