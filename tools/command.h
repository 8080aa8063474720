#pragma once

#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace sparsekiln::tools {

/// Keys in the order in which they were added.
using Json = nlohmann::ordered_json;

/// Exit statuses: what a shell script can rely on.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kNoSense = 2;

/// What a subcommand found out. `main` prints one form of it and ends with `status`.
struct Answer {
  Json json;                               ///< the document of --json
  std::string text;                        ///< for people; ends with a newline
  std::vector<std::string> warnings = {};  ///< for standard error, and in the document
  int status = kDone;
};

/// What the command line asks for: parsing fills it, `main` runs it afterwards.
struct Invocation {
  bool json = false;
  std::function<Answer()> command;
};

// One function a subcommand, in the file of its name: declares its options, and sets `invocation.command`.
void add_layout(CLI::App& app, Invocation& invocation);
void add_compile(CLI::App& app, Invocation& invocation);
void add_run(CLI::App& app, Invocation& invocation);
void add_verify(CLI::App& app, Invocation& invocation);
void add_precompile(CLI::App& app, Invocation& invocation);
void add_pack(CLI::App& app, Invocation& invocation);
void add_cache(CLI::App& app, Invocation& invocation);
void add_tune(CLI::App& app, Invocation& invocation);
void add_records(CLI::App& app, Invocation& invocation);
void add_report(CLI::App& app, Invocation& invocation);
void add_doctor(CLI::App& app, Invocation& invocation);

}  // namespace sparsekiln::tools
