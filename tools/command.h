#pragma once

#include <functional>

#include "tools/answer.h"

namespace CLI {
class App;
}

namespace sparsekiln::tools {

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
