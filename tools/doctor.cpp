#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>
#include <sparsekiln/target.h>

#include "cache/store.h"
#include "compiler/build.h"
#include "compiler/cuda/compatibility.h"
#include "compiler/cuda/nvrtc_choice.h"
#include "runtime/stores.h"
#ifdef SPARSEKILN_CPU
#include "compiler/cpu/object.h"
#endif
#include "runtime/cuda/device_info.h"
#include "runtime/cuda/emulator.h"
#include "runtime/read_only_stores.h"
#include "tools/command.h"
#include "tools/options.h"

namespace sparsekiln::tools {
namespace {

/// One line of the report: what was looked for, and what was found.
struct Finding {
  std::string part;
  Json json;
  std::string text;
};

Json describe(const cuda::DeviceInfo& device) {
  return {{"ordinal", device.ordinal},
          {"name", device.name},
          {"arch", fmt::format("sm_{}", device.compute_capability)},
          {"pci_bus_id", device.pci_bus_id},
          {"multiprocessors", device.multiprocessors},
          {"memory_bytes", device.memory_bytes},
          {"l2_bytes", device.l2_bytes}};
}

Finding look_for_driver() {
  const cuda::DriverReport report = cuda::report_driver();
  Json json = {{"found", report.found}, {"devices", Json::array()}};
  if (!report.release.empty()) json["release"] = report.release;
  if (!report.found) {
    json["why"] = report.failure;
    return {"cuda driver", json, fmt::format("no GPU can be used here: {}", report.failure)};
  }
  json["path"] = report.path;
  json["cuda_version"] = report.version;
  std::string text = fmt::format("{}{}, for CUDA up to {}, {} device{}", printable(report.path),
                                 report.release.empty() ? "" : ", release " + printable(report.release),
                                 cuda::version_text(report.version), report.devices.size(),
                                 report.devices.size() == 1 ? "" : "s");
  for (const cuda::DeviceInfo& device : report.devices) {
    json["devices"].push_back(describe(device));
    text +=
        fmt::format("\n  cuda:{}: {}, sm_{}, {} multiprocessors, {:.1f} GiB, {} MiB of L2", device.ordinal,
                    printable(device.name), device.compute_capability, device.multiprocessors,
                    static_cast<double>(device.memory_bytes) / (1 << 30), device.l2_bytes >> 20);
    if (!device.pci_bus_id.empty()) text += fmt::format(", at {}", printable(device.pci_bus_id));
  }
  return {"cuda driver", json, text};
}

Finding look_for_emulator() {
  try {
    const cuda::Emulator emulator;
    const std::string path = emulator.driver().path().string();
    return {"emulator", {{"found", true}, {"path", path}}, printable(path)};
  } catch (const Error& error) {
    return {
        "emulator", {{"found", false}, {"why", error.what()}}, fmt::format("not found: {}", error.what())};
  }
}

Finding look_for_nvrtc() {
  const cuda::NvrtcSurvey survey = cuda::survey_nvrtc();
  const Toolchain toolchain = cuda::machine_toolchain();
  const int driver = toolchain.driver_version;
  const auto chosen = cuda::choose(survey, toolchain);
  Json json = {{"found", chosen != nullptr}, {"libraries", Json::array()}};
  std::string text;
  for (const auto& nvrtc : survey.found) {
    const bool used = nvrtc == chosen;
    const cuda::Loads loads = cuda::loads(driver, nvrtc->version());
    json["libraries"].push_back({{"path", nvrtc->path().string()},
                                 {"version", cuda::version_text(nvrtc->version())},
                                 {"architectures", nvrtc->architectures()},
                                 {"cubins_load", loads != cuda::Loads::nothing},
                                 {"ptx_loads", loads == cuda::Loads::both},
                                 {"used", used}});
    text += fmt::format("\n  {}{} in {}", used ? "used: " : "", cuda::version_text(nvrtc->version()),
                        printable(nvrtc->path().string()));
    if (driver != 0)
      text += fmt::format("; the driver {}", cuda::describe_loads(toolchain, nvrtc->version()));
  }
  if (chosen == nullptr) {
    json["why"] = cuda::why_none(survey, toolchain);
    return {"nvrtc", json, json["why"].get<std::string>()};
  }
  json["path"] = chosen->path().string();
  json["version"] = cuda::version_text(chosen->version());
  json["architectures"] = chosen->architectures();
  const bool ptx_loads = cuda::loads(driver, chosen->version()) == cuda::Loads::both;
  json["why"] = driver == 0 ? "the newest that was found"
                : ptx_loads ? "the newest whose cubins and PTX the driver loads"
                            : "the newest whose cubins the driver loads; none was found whose PTX it loads";
  std::string head = fmt::format("{} ({}), compiles for sm_{}", cuda::version_text(chosen->version()),
                                 json["why"].get<std::string>(), fmt::join(chosen->architectures(), ", sm_"));
  if (!ptx_loads) head += fmt::format("; for both: {}", cuda::nvrtc_for(driver));
  return {"nvrtc", json, head + text};
}

Finding look_at_cpu() {
#ifdef SPARSEKILN_CPU
  const Target host = Target::host();
  return {"cpu",
          {{"found", true},
           {"level", host.arch},
           {"threads", host.workers},
           {"compiler", cpu::compiler_version()}},
          fmt::format("{}, {} thread{}, {}", host.arch, host.workers, host.workers == 1 ? "" : "s",
                      cpu::compiler_version())};
#else
  const std::string why = "this build has no LLVM (meson option cpu)";
  return {"cpu", {{"found", false}, {"why", why}}, why};
#endif
}

Finding look_at_cache() {
  const cache::Store store;
  const std::string folder = store.folder().string();
  if (store.on_disk())
    return {"cache",
            {{"usable", true}, {"folder", folder}, {"complaint", store.complaint()}},
            fmt::format("usable, {}{}{}", printable(folder), store.complaint().empty() ? "" : "; ",
                        store.complaint())};
  return {"cache",
          {{"usable", false}, {"folder", folder}, {"why", store.why()}},
          fmt::format("in memory only: {}", store.why())};
}

/// Asks the server for an entry that does not exist.
Finding look_at_shared_level() {
  const SharedLevel& level = shared_level();
  if (level.remote == nullptr) {
    const std::string why = level.complaint.empty() ? "none (SPARSEKILN_REMOTE)" : level.complaint;
    return {"shared cache", {{"usable", false}, {"why", why}}, why};
  }
  const auto refuse = [](std::span<const std::byte>) { return false; };
  static_cast<void>(level.remote->get(cache::Identity().add("what", "probe"), refuse));
  const std::string problem = level.remote->problem();
  const Json json = {{"usable", problem.empty()},
                     {"place", level.remote->place()},
                     {"sends", level.remote->sends()},
                     {"believes_unsigned", level.remote->believes_unsigned()},
                     {"why", problem}};
  if (!problem.empty())
    return {"shared cache", json,
            fmt::format("{} does not serve: {}", printable(level.remote->place()), problem)};
  return {
      "shared cache", json,
      fmt::format("{}, {}{}", printable(level.remote->place()),
                  level.remote->sends() ? "read and written" : "read; there is no secret key to sign with",
                  level.remote->believes_unsigned() ? "; UNSIGNED entries are believed" : "")};
}

Finding look_at_packs() {
  const ReadOnlyStores layers({}, true, Require::anything);
  Json json = {{"usable", layers.warning().empty()}, {"packs", layers.names()}};
  if (layers.warning().empty()) return {"packs", json, layers.names()};
  json["why"] = layers.warning();
  return {"packs", json, fmt::format("{}; passed over: {}", layers.names(), layers.warning())};
}

Answer examine() {
  Answer answer;
  answer.json = {{"version", SPARSEKILN_VERSION}, {"compiler_digest", compiler_digest()}};
  answer.text =
      fmt::format("sparsekiln {}, compiler {}\n", SPARSEKILN_VERSION, compiler_digest().substr(0, 16));
  for (Finding& finding :
       std::vector<Finding>{look_for_driver(), look_for_emulator(), look_for_nvrtc(), look_at_cpu(),
                            look_at_packs(), look_at_cache(), look_at_shared_level()}) {
    std::string key = finding.part;
    for (char& letter : key) letter = letter == ' ' ? '_' : letter;
    answer.json[key] = finding.json;
    answer.text += fmt::format("{}: {}\n", finding.part, finding.text);
  }
  return answer;
}

}  // namespace

void add_doctor(CLI::App& root, Invocation& invocation) {
  CLI::App& app = *root.add_subcommand(
      "doctor", "says what was found where: driver, emulator, NVRTC, cpu, packs, caches");
  add_json(app, invocation);
  app.callback([&invocation] { invocation.command = [] { return examine(); }; });
}

}  // namespace sparsekiln::tools
