#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>

#include "tests/conformance/assemble.h"
#include "tests/conformance/golden.h"
#include "tests/conformance/judge.h"

// Conformance cases: each is a test case of its own, in the suite of its family.
//
//   test_conformance --cases DIR [--target emulated[:sm_80]|cuda[:N]] [--golden DIR] [--answers FILE]
//   [doctest's options] test_conformance --cases DIR --write-ptx DIR     the modules, DIR/sm_80/FAMILY.N.ptx,
//   and nothing is run

namespace {

using namespace sparsekiln;
using namespace sparsekiln::conformance;

struct Options {
  std::string cases, golden, answers, write_ptx, target = "cuda";
  std::vector<const char*> doctest;
};

struct Session {
  std::vector<Case> cases;
  std::map<std::string, const Case*> by_title;
  std::optional<Runner> runner;
  GoldenAnswers golden;
  AnswerWriter answers;
};

/// doctest calls functions without arguments.
Session& session() {
  static Session only;
  return only;
}

void run_current_case() {
  Session& now = session();
  const Case& test = *now.by_title.at(doctest::getContextOptions()->currentTest->m_name);
  const bool refusal = now.runner->emulated() && !test.refused.empty();
  Answer answer;
  try {
    answer = now.runner->run(test);
  } catch (const Error& error) {
    const std::string said = error.what();
    if (!refusal) FAIL(said);
    CHECK_MESSAGE(said.find(test.refused) != said.npos, said);
    return;
  }
  if (refusal) FAIL("not refused any more: the case can lose its line `refused`");
  now.answers.add(test, answer);
  const std::string wrong = differences(test, answer);
  CHECK_MESSAGE(wrong.empty(), wrong);
  for (const GoldenAnswers::Entry& entry : now.golden.to(test)) {
    const std::string other = differences(test, answer, entry.answer);
    CHECK_MESSAGE(other.empty(), entry.device, " answered otherwise: ", other);
  }
}

/// True where doctest will only print something: that needs no device.
bool only_asks(const std::vector<const char*>& arguments) {
  constexpr std::array<std::string_view, 10> kQueries = {
      "--help", "-h", "--version", "-v", "--count", "-c", "--list-test-cases", "-ltc", "--list-test-suites",
      "-lts"};
  return std::any_of(arguments.begin(), arguments.end(), [&](std::string_view argument) {
    return std::find(kQueries.begin(), kQueries.end(), argument) != kQueries.end();
  });
}

Options parse(int count, char** values) {
  Options options;
  options.doctest.push_back(values[0]);
  const std::map<std::string_view, std::string*> known = {{"--cases", &options.cases},
                                                          {"--golden", &options.golden},
                                                          {"--answers", &options.answers},
                                                          {"--write-ptx", &options.write_ptx},
                                                          {"--target", &options.target}};
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = values[i];
    const std::size_t equals = argument.find('=');
    const auto place = known.find(argument.substr(0, equals));
    if (place == known.end())
      options.doctest.push_back(values[i]);
    else if (equals != argument.npos)
      *place->second = argument.substr(equals + 1);
    else if (++i < count)
      *place->second = values[i];
    else
      throw Error(ErrorKind::invalid_argument, fmt::format("{} needs a value", argument));
  }
  if (options.cases.empty()) throw Error(ErrorKind::invalid_argument, "--cases DIR says where the cases are");
  return options;
}

/// Each case as a test case of its own. doctest keeps the pointers.
void register_cases(Session& now) {
  for (const Case& test : now.cases) {
    if (now.runner && !now.runner->takes(test)) continue;
    const auto place = now.by_title.emplace(test.title(), &test).first;
    const doctest::detail::TestSuite suite = doctest::detail::TestSuite{} * test.family.c_str();
    doctest::detail::regTest(doctest::detail::TestCase(run_current_case, test.file.c_str(),
                                                       static_cast<unsigned>(test.line), suite) *
                             place->first.c_str());
  }
}

void write_modules(const std::vector<Case>& cases, const std::filesystem::path& folder) {
  for (const Case& test : cases) {
    const std::filesystem::path place = folder / architecture_of(test);
    std::filesystem::create_directories(place);
    std::ofstream file(place / fmt::format("{}.{}.ptx", test.family, test.line));
    file << module_of(test);
    if (!file) throw Error(ErrorKind::invalid_argument, fmt::format("{} cannot be written", place.string()));
  }
}

int run(int count, char** values) {
  const Options options = parse(count, values);
  Session& now = session();
  now.cases = load_cases(options.cases);
  if (!options.write_ptx.empty()) {
    write_modules(now.cases, options.write_ptx);
    return 0;
  }
  doctest::Context context(static_cast<int>(options.doctest.size()), options.doctest.data());
  if (!only_asks(options.doctest)) {
    now.runner.emplace(options.target);
    now.golden = GoldenAnswers::load(options.golden);
    std::printf("conformance on %s\n", now.runner->device().name.c_str());
  }
  register_cases(now);
  if (const std::size_t left_out = now.cases.size() - now.by_title.size(); left_out > 0)
    std::printf("%zu cases are for newer devices\n", left_out);
  const int status = context.run();
  if (now.runner && !options.answers.empty())
    now.answers.write(options.answers, now.runner->device(), now.runner->driver_version());
  now.runner.reset();
  return status;
}

}  // namespace

int main(int count, char** values) {
  try {
    return run(count, values);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "test_conformance: %s\n", error.what());
    return 2;
  }
}
