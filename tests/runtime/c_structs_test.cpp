#include "runtime/c_structs.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

namespace sparsekiln {
namespace {

/// A struct in three versions.
struct First {
  std::size_t size;
  std::int64_t a;
};
struct Second {
  std::size_t size;
  std::int64_t a, b;
};
struct Third {
  std::size_t size;
  std::int64_t a, b, c;
};
constexpr Second kDefaults{sizeof(Second), 1, 2};

/// As a library of the second version reads it.
template <typename Struct>
Second read(const Struct& from) {
  return read_struct(&from, kDefaults, sizeof(First), "options");
}

template <typename Struct>
std::string refusal(const Struct& from) {
  try {
    static_cast<void>(read(from));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return {};
}

TEST_CASE("members that an older program's struct lacks have their defaults") {
  const std::array<First, 2> given{First{sizeof(First), 10}, First{77, 77}};  // what is after it is not read
  const Second taken = read(given[0]);
  CHECK(taken.a == 10);
  CHECK(taken.b == 2);
}

TEST_CASE("a newer program's struct is taken where it says nothing that is not known") {
  const Second taken = read(Third{sizeof(Third), 10, 20, 0});
  CHECK(taken.a == 10);
  CHECK(taken.b == 20);
  CHECK(refusal(Third{sizeof(Third), 10, 20, 1}).find("not all zero") != std::string::npos);
}

TEST_CASE("a size that no version has is refused") {
  for (const std::size_t size : {std::size_t{0}, sizeof(First) - 1, kMostStructBytes + 1}) {
    CAPTURE(size);
    CHECK(refusal(Second{size, 10, 20}).find("options has size") != std::string::npos);
  }
}

TEST_CASE("no byte after the caller's size of a struct is written") {
  std::array<First, 2> older{First{sizeof(First), 0}, First{77, 78}};
  write_struct(older.data(), size_to_write(older.data(), "view"), kDefaults);
  CHECK(older[0].size == sizeof(First));
  CHECK(older[0].a == 1);
  CHECK(older[1].size == 77);
  CHECK(older[1].a == 78);
}

TEST_CASE("what a newer program's struct has beyond this library's is set to zeros") {
  Third newer{sizeof(Third), 7, 7, 7};
  write_struct(&newer, size_to_write(&newer, "view"), kDefaults);
  CHECK(newer.size == sizeof(Third));
  CHECK(newer.b == 2);
  CHECK(newer.c == 0);
}

TEST_CASE("a struct whose size was not set is not written to") {
  for (const std::size_t size : {std::size_t{0}, kMostStructBytes + 1}) {
    const First unset{size, 0};
    CHECK_THROWS_AS((void)size_to_write(&unset, "view"), Error);
  }
}

}  // namespace
}  // namespace sparsekiln
