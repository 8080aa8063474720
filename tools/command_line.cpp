#include <csignal>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sparsekiln/error.h>
#include <sparsekiln/printable.h>
#include <CLI/CLI.hpp>

#include "system/standard_streams.h"
#include "tools/command.h"
#include "tools/command_line.h"

namespace sparsekiln::tools {
namespace {

/// "sparsekiln: " and what follows, to standard error; control characters in it are escaped.
void say(std::string_view message) {
  write_message(fmt::format("sparsekiln: {}\n", printable_lines(message)));
}

/// The status, or that of a failure where the results could not be written.
int print(std::string_view text, int status) {
  try {
    write_results(text);
    return status;
  } catch (const Error& error) {
    say(error.what());
    return kFailed;
  }
}

/// Bytes that are no UTF-8 (a file name may hold any) must not stop the document: they are replaced. All but
/// ASCII is written as \u, since a document is read on terminals, too.
std::string document(const Json& json) {
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

int fail(bool json, int status, std::string_view kind, const std::string& message,
         const std::string& log = {}) {
  say(message);
  if (!log.empty()) write_message(printable_lines(log) + (log.ends_with('\n') ? "" : "\n"));
  if (!json) return status;
  Json error = {{"kind", kind}, {"message", message}};
  if (!log.empty()) error["log"] = log;
  return print(document({{"ok", false}, {"error", error}}), status);
}

int run(const Invocation& invocation) {
  const bool json = invocation.json;
  try {
    const Answer answer = invocation.command();
    for (const std::string& warning : answer.warnings) say(warning);
    if (!json) return print(printable_lines(answer.text), answer.status);
    Json whole = {{"ok", answer.status == kDone}};
    whole.update(answer.json);
    if (!answer.warnings.empty()) whole["warnings"] = answer.warnings;
    return print(document(whole), answer.status);
  } catch (const Error& error) {
    const int status = error.kind() == ErrorKind::invalid_argument ? kNoSense : kFailed;
    return fail(json, status, name(error.kind()), error.what(), error.log());
  } catch (const std::bad_alloc&) {
    return fail(json, kFailed, "memory", "out of memory: a smaller layout or batch would need less");
  } catch (const std::exception& error) {
    return fail(json, kFailed, name(ErrorKind::internal), error.what());
  }
}

/// The subcommand that parsing had reached, for the hint at its help: "sparsekiln layout make".
std::string path_of(const CLI::App& app) {
  std::string path = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    path += " " + at->get_name();
  }
  return path;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Bakes the layout of a block-sparse linear layer or convolution into machine code.",
               "sparsekiln");
  app.set_version_flag("--version", fmt::format("sparsekiln {}", SPARSEKILN_VERSION));
  app.require_subcommand(1);
  Invocation invocation;
  add_layout(app, invocation);
  add_compile(app, invocation);
  add_run(app, invocation);
  add_verify(app, invocation);
  add_precompile(app, invocation);
  add_pack(app, invocation);
  add_cache(app, invocation);
  add_tune(app, invocation);
  add_records(app, invocation);
  add_report(app, invocation);
  add_doctor(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wish) {  // --help, --version
    std::ostringstream text;
    app.exit(wish, text, text);
    return print(text.str(), kDone);
  } catch (const CLI::ParseError& error) {
    bool json = false;  // parsing may have stopped before it got there
    for (int i = 1; i < argc; ++i) json = json || std::string_view(argv[i]) == "--json";
    const std::vector<std::string> rest = app.remaining(true);
    const std::string unknown =
        rest.empty() ? "" : fmt::format("'{}' is not known here: ", fmt::join(rest, " "));
    return fail(json, kNoSense, name(ErrorKind::invalid_argument),
                fmt::format("{}; see `{} --help`", printable(unknown + error.what()), path_of(app)));
  }
  return run(invocation);
}

}  // namespace

int run_command_line(int argc, char** argv) {
  hold_standard_streams();
  // What libraries write to a closed pipe or to a full file ends nothing either.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    say(error.what());
    return kFailed;
  }
}

}  // namespace sparsekiln::tools
