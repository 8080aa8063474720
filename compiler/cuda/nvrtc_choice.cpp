#include "compiler/cuda/nvrtc_choice.h"

#include <algorithm>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>

#include "compiler/cuda/compatibility.h"
#include "compiler/cuda/nvrtc_search.h"

namespace sparsekiln::cuda {
namespace {

namespace fs = std::filesystem;

/// The library of a candidate, opened once a process. One that cannot be opened is tried again: it may come.
std::shared_ptr<const Nvrtc> opened(const fs::path& candidate, std::string& why_not) {
  static std::mutex mutex;
  static std::map<fs::path, std::shared_ptr<const Nvrtc>> libraries;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Nvrtc>& library = libraries[candidate];
  if (library == nullptr) library = Nvrtc::open(candidate, why_not);
  return library;
}

bool is_bare(const fs::path& candidate) { return !candidate.has_parent_path(); }

/// "\n  PATH: NVRTC 13.0; driver 550.54.14 (CUDA 12.4) loads neither its cubins nor its PTX", and for which
/// architectures it compiles where that is asked.
std::string list_found(const NvrtcSurvey& survey, const Toolchain& toolchain, bool architectures) {
  std::string text;
  for (const auto& nvrtc : survey.found) {
    text += fmt::format("\n  {}: {}", printable(nvrtc->path().string()), nvrtc->name());
    if (toolchain.driver_version != 0)
      text += fmt::format("; {} {}", describe_driver(toolchain), describe_loads(toolchain, nvrtc->version()));
    if (architectures)
      text += fmt::format("; compiles for sm_{}", fmt::join(nvrtc->architectures(), ", sm_"));
  }
  return text;
}

}  // namespace

NvrtcSurvey survey_nvrtc() {
  NvrtcSearch search = search_nvrtc();
  NvrtcSurvey survey;
  survey.looked_in = std::move(search.looked_in);
  const std::vector<fs::path>& candidates = search.candidates;
  std::vector<std::shared_ptr<const Nvrtc>> libraries(candidates.size());
  std::vector<std::string> why_not(candidates.size());
  // Bare names first: the loader answers them with whatever has that name and is loaded already.
  for (const bool bare : {true, false})
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (is_bare(candidates[i]) == bare) libraries[i] = opened(candidates[i], why_not[i]);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::shared_ptr<const Nvrtc>& library = libraries[i];
    if (library == nullptr) {
      survey.refused.push_back(
          fmt::format("{}: {}", printable(candidates[i].string()), printable(why_not[i])));
      continue;
    }
    const bool known = std::any_of(survey.found.begin(), survey.found.end(),
                                   [&](const auto& other) { return other->path() == library->path(); });
    if (!known) survey.found.push_back(library);
  }
  return survey;
}

std::shared_ptr<const Nvrtc> choose(const NvrtcSurvey& survey, const Toolchain& toolchain,
                                    std::string_view arch) {
  const int driver = toolchain.driver_version;
  std::shared_ptr<const Nvrtc> best;
  for (const auto& nvrtc : survey.found) {
    if (loads(driver, nvrtc->version()) == Loads::nothing) continue;
    if (!arch.empty() && !nvrtc->compiles_for(arch)) continue;
    if (best == nullptr || serves_better(driver, nvrtc->version(), best->version())) best = nvrtc;
  }
  return best;
}

std::shared_ptr<const Nvrtc> find_nvrtc(const Toolchain& toolchain, std::string_view arch) {
  const NvrtcSurvey survey = survey_nvrtc();
  auto best = choose(survey, toolchain, arch);
  if (best == nullptr) throw Error(ErrorKind::compile, why_none(survey, toolchain, arch));
  return best;
}

std::string describe_loads(const Toolchain& toolchain, int nvrtc) {
  switch (loads(toolchain.driver_version, nvrtc)) {
    case Loads::nothing:
      return "loads neither its cubins nor its PTX";
    case Loads::cubin:
      return "loads its cubins, not its PTX";
    case Loads::both:
      break;
  }
  return "loads its cubins and its PTX";
}

std::string why_none(const NvrtcSurvey& survey, const Toolchain& toolchain, std::string_view arch) {
  const int driver = toolchain.driver_version;
  const std::string fit = nvrtc_for(driver);
  if (survey.found.empty())
    return fmt::format(
        "NVRTC, the library that compiles CUDA source, was not found. Looked in:\n  {}{}{}\n"
        "What would work{}: {}; SPARSEKILN_NVRTC can name the library or its folder. Precompiled kernels "
        "need "
        "none.",
        fmt::join(survey.looked_in, "\n  "), survey.refused.empty() ? "" : "\nRefused:\n  ",
        fmt::join(survey.refused, "\n  "),
        driver == 0 ? "" : fmt::format(" with {}", describe_driver(toolchain)),
        fit.empty() ? driver_for(12000) : fit);
  const auto fits = [&](const auto& nvrtc) { return loads(driver, nvrtc->version()) != Loads::nothing; };
  if (std::any_of(survey.found.begin(), survey.found.end(), fits))
    return fmt::format(
        "no NVRTC whose code {} loads compiles for {}. Found:{}\nWhat would work: an NVRTC that compiles for "
        "{}{}.",
        describe_driver(toolchain), arch, list_found(survey, toolchain, true), arch,
        driver == 0 ? ""
                    : fmt::format(", of version {} or older for this driver; for another machine's driver, "
                                  "precompile --driver",
                                  driver / 1000));
  const auto oldest =
      *std::min_element(survey.found.begin(), survey.found.end(),
                        [](const auto& a, const auto& b) { return a->version() < b->version(); });
  return fmt::format(
      "no NVRTC was found whose code {} loads. Found:{}\nLooked in:\n  {}\nWhat would work: {}{}.",
      describe_driver(toolchain), list_found(survey, toolchain, false), fmt::join(survey.looked_in, "\n  "),
      fit.empty() ? "" : fit + ", or ", driver_for(oldest->version()));
}

}  // namespace sparsekiln::cuda
