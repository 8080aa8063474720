#include "autotune/record_json.h"

#include <functional>
#include <iterator>
#include <string>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>
#include <nlohmann/json.hpp>

#include "tests/autotune/contests.h"

namespace sparsekiln {
namespace {

using Json = nlohmann::ordered_json;

/// The message for a text that is refused; empty where it is not.
std::string refusal(const std::string& text) {
  try {
    (void)parse_record(text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    return error.what();
  }
  return {};
}

/// Likewise, of a whole record after a change.
std::string refusal_of(const std::function<void(Json&)>& change) {
  Json json = Json::parse(to_json(test::full_record()));
  change(json);
  return refusal(json.dump());
}

void check_names(const std::string& message, std::initializer_list<const char*> parts) {
  CAPTURE(message);
  for (const char* part : parts) {
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

/// Calls `use` for every object within, with the path to it.
void each_object(const Json& json, const Json::json_pointer& at,
                 const std::function<void(const Json::json_pointer&)>& use) {
  if (json.is_object()) use(at);
  if (!json.is_structured()) return;
  for (const auto& [key, value] : json.items())
    each_object(value, json.is_array() ? at / std::stoul(key) : at / key, use);
}

TEST_CASE("a record keeps every field, and times every bit") {
  const Record record = test::full_record();
  const std::string json = to_json(record);
  CHECK(json.find('\n') == std::string::npos);
  CHECK(parse_record(json) == record);
  CHECK(to_json(parse_record(json)) == json);
}

TEST_CASE("a record without any contest is one, too") {
  const Record record{.problem = {{"operation", "forward"}}};
  CHECK(parse_record(to_json(record)) == record);
}

TEST_CASE("a reason that is not UTF-8 does not cost the record") {
  Record record = test::full_record();
  record.contests[0].candidates[2].reason = "its answer is \xff wrong";
  const Record read = parse_record(to_json(record));
  CHECK(read.contests[0].candidates[2].reason.ends_with(" wrong"));
  CHECK(read.contests[0].candidates[1] == record.contests[0].candidates[1]);
}

TEST_CASE("whichever field is missing, it is refused and named") {
  const Json whole = Json::parse(to_json(test::full_record()));
  int tried = 0;
  each_object(whole, Json::json_pointer(), [&](const Json::json_pointer& at) {
    if (at.to_string() == "/problem") return;  // its fields are the problem's own
    for (const auto& [key, value] : whole[at].items()) {
      const std::string field = key;
      const std::string message = refusal_of([&](Json& json) { json[at].erase(field); });
      CAPTURE(at.to_string());
      check_names(message, {field.c_str()});
      ++tried;
    }
  });
  CHECK(tried > 100);
}

TEST_CASE("a value of another type is refused wherever it stands") {
  const Json whole = Json::parse(to_json(test::full_record()));
  each_object(whole, Json::json_pointer(), [&](const Json::json_pointer& at) {
    for (const auto& [key, value] : whole[at].items()) {
      const std::string field = key;
      const Json other = value.is_null() ? Json("null") : Json();
      CAPTURE(at.to_string());
      CAPTURE(field);
      CHECK_FALSE(refusal_of([&](Json& json) { json[at][field] = other; }).empty());
    }
  });
}

TEST_CASE("what is wrong is said with its place and what was expected") {
  check_names(refusal_of([](Json& json) { json["contests"][0]["candidates"][1]["samples_us"][1] = "3"; }),
              {"contests[0].candidates[1].samples_us[1]", "a number"});
  check_names(refusal_of([](Json& json) { json["contests"][0]["candidates"][1]["final_us"][0] = 0; }),
              {"contests[0].candidates[1].final_us[0]", "above 0"});
  check_names(refusal_of([](Json& json) { json["contests"][0]["candidates"][1]["compile_ms"] = -1; }),
              {"contests[0].candidates[1].compile_ms", "0 or more"});
  check_names(refusal_of([](Json& json) { json["contests"][1]["n"] = -64; }), {"contests[1].n", "0 to"});
  check_names(refusal_of([](Json& json) { json["contests"][1]["n"] = 1e300; }),
              {"contests[1].n", "whole number"});
  check_names(refusal_of([](Json& json) { json["environment"]["workers"] = std::uint64_t{1} << 63; }),
              {"environment.workers", "0 to 2147483647"});
  check_names(refusal_of([](Json& json) { json["contests"][0]["candidates"][0]["outcome"] = "best"; }),
              {"contests[0].candidates[0].outcome", "modelled"});
  check_names(refusal_of([](Json& json) { json["contests"][0]["default"] = "vector tile_n=many"; }),
              {"contests[0].default", "a config"});
  check_names(refusal_of([](Json& json) { json["layout"]["picture"][1] = "0fg"; }),
              {"layout.picture[1]", "hexadecimal"});
  check_names(refusal_of([](Json& json) { json["layout"]["picture"][1] = "0f"; }), {"layout.picture[1]"});
  check_names(refusal_of([](Json& json) { json["layout"]["picture"][0] = std::string(65, 'f'); }),
              {"layout.picture[0]", "64"});
}

TEST_CASE("another version of the format is refused") {
  check_names(refusal_of([](Json& json) { json["version"] = 2; }), {"version", "expected 1"});
}

TEST_CASE("texts that are no record are refused") {
  const std::string whole = to_json(test::full_record());
  for (const std::string& text :
       {std::string(), std::string("null"), std::string("[]"), std::string("{"), std::string(100'000, '['),
        std::string("{\"version\":1e999}"), whole + "x", std::string(whole).replace(10, 1, 1, '\0')}) {
    CAPTURE(text.substr(0, 40));
    CHECK_FALSE(refusal(text).empty());
  }
}

TEST_CASE("a name that is there twice is refused and named") {
  check_names(refusal(R"({"version": 1, "problem": {"block": "8x8", "dtype": "f32", "block": "16x16"}})"),
              {"block: expected a name once"});
  CHECK(refusal(R"({"version": 1, "layout": {"version": 1}})").find("once") == std::string::npos);
}

TEST_CASE("more names than any record has are refused, as is deep nesting") {
  const auto problem_of = [](int names) {
    return refusal_of([&](Json& json) {
      while (std::ssize(json["problem"]) < names)
        json["problem"][std::to_string(json["problem"].size())] = "";
    });
  };
  CHECK(problem_of(256).empty());
  check_names(problem_of(257), {"an object: expected at most 256 names"});
  check_names(refusal("{\"version\":" + std::string(17, '[')), {"its depth: expected at most 16"});
}

TEST_CASE("a record that was cut off anywhere is refused") {
  const std::string whole = to_json(test::full_record());
  for (std::size_t size = 0; size < whole.size(); size += 13) {
    CAPTURE(size);
    CHECK_FALSE(refusal(whole.substr(0, size)).empty());
  }
}

}  // namespace
}  // namespace sparsekiln
