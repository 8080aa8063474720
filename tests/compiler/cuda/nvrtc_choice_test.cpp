#include "compiler/cuda/nvrtc_choice.h"

#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sparsekiln/error.h>

#include "tests/compiler/cuda/fake_nvrtc.h"

namespace sparsekiln::cuda {
namespace {

using test::FakeNvrtcs;

/// A survey that has found these, in this order.
NvrtcSurvey survey_of(const FakeNvrtcs& fakes, const std::vector<std::string>& versions) {
  NvrtcSurvey survey;
  for (const std::string& version : versions) {
    std::string why_not;
    survey.found.push_back(Nvrtc::open(fakes.add(version, "80 90", "of-" + version), why_not));
    REQUIRE_MESSAGE(survey.found.back() != nullptr, why_not);
  }
  return survey;
}

std::string chosen(const NvrtcSurvey& survey, int driver, const char* arch = "") {
  const auto nvrtc = choose(survey, {driver}, arch);
  return nvrtc == nullptr ? "none" : nvrtc->name();
}

TEST_CASE(
    "the newest whose cubins and PTX the driver loads is chosen, else the newest whose cubins it loads") {
  const FakeNvrtcs fakes;
  const NvrtcSurvey all = survey_of(fakes, {"13.0", "12.4", "12.9", "13.1"});
  CHECK(chosen(all, 0) == "NVRTC 13.1");
  CHECK(chosen(all, 13010) == "NVRTC 13.1");
  CHECK(chosen(all, 13000) == "NVRTC 13.0");
  CHECK(chosen(all, 12090) == "NVRTC 12.9");
  CHECK(chosen(all, 12080) == "NVRTC 12.4");
  CHECK(chosen(all, 12020) == "NVRTC 12.9");
  CHECK(chosen(all, 11080) == "none");
}

TEST_CASE("an NVRTC whose PTX is too new for the driver gives way to an older major version") {
  const FakeNvrtcs fakes;
  const NvrtcSurvey survey = survey_of(fakes, {"12.9", "13.1"});
  CHECK(chosen(survey, 13000) == "NVRTC 12.9");
}

TEST_CASE("among equal versions the one that is found first is chosen") {
  const FakeNvrtcs fakes;
  NvrtcSurvey survey;
  std::string why_not;
  for (const char* folder : {"first", "second"})
    survey.found.push_back(Nvrtc::open(fakes.add("12.9", "80", folder), why_not));
  CHECK(choose(survey, {}) == survey.found.front());
}

TEST_CASE("one that does not know the architecture is passed over") {
  const FakeNvrtcs fakes;
  NvrtcSurvey survey;
  std::string why_not;
  survey.found.push_back(Nvrtc::open(fakes.add("12.4", "80 90", "old"), why_not));
  survey.found.push_back(Nvrtc::open(fakes.add("12.9", "80 90 100", "new"), why_not));
  CHECK(chosen(survey, 12040, "sm_90") == "NVRTC 12.4");
  CHECK(chosen(survey, 12040, "sm_100") == "NVRTC 12.9");
  CHECK(chosen(survey, 12040, "sm_120") == "none");
  const std::string why = why_none(survey, {12040, "550.54.14"}, "sm_120");
  CHECK(why.find("compiles for sm_120, of version 12 or older for this driver") != std::string::npos);
  CHECK(
      why.find("NVRTC 12.9; driver 550.54.14 (CUDA 12.4) loads its cubins, not its PTX; compiles for sm_80, "
               "sm_90, sm_100") != std::string::npos);
}

TEST_CASE("a folder's libraries are asked for their version, and the newest that the driver takes is found") {
  const FakeNvrtcs fakes;
  fakes.add("12.9");
  fakes.add("13.0");
  CHECK(find_nvrtc({13000})->name() == "NVRTC 13.0");
  CHECK(find_nvrtc({12090})->name() == "NVRTC 12.9");
  CHECK(find_nvrtc({12090}) == find_nvrtc({12040}));
}

TEST_CASE("a library that two names lead to is found once") {
  const FakeNvrtcs fakes;
  const std::filesystem::path file = fakes.add("13.0");
  std::filesystem::create_symlink(file.filename(), file.parent_path() / "libnvrtc.so.12");
  CHECK(survey_nvrtc().found.size() == 1);
}

TEST_CASE(
    "where the driver is too old for all that is found, the error says what was found and what would work") {
  const FakeNvrtcs fakes;
  const std::string file = fakes.add("13.0").string();
  try {
    static_cast<void>(find_nvrtc({12040, "550.54.14"}, "sm_90"));
    FAIL("an NVRTC was taken whose code this driver does not load");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::compile);
    const std::string message = error.what();
    for (const std::string& part :
         {file + ": NVRTC 13.0; driver 550.54.14 (CUDA 12.4) loads neither its cubins nor its PTX",
          std::string("pip install 'nvidia-cuda-nvrtc-cu12<12.5'"),
          std::string("a driver of release 580 or later")}) {
      CAPTURE(part);
      CAPTURE(message);
      CHECK(message.find(part) != std::string::npos);
    }
  }
}

TEST_CASE("what is no NVRTC of version 12 or later is refused by name") {
  const FakeNvrtcs fakes;
  std::string why_not;
  CHECK(Nvrtc::open(fakes.add("11.8", "80", "old"), why_not) == nullptr);
  CHECK(why_not == "it is no NVRTC of version 12 or later");
}

}  // namespace
}  // namespace sparsekiln::cuda
