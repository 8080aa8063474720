#pragma once

#include <CLI/CLI.hpp>

#include "tools/command.h"
#include "tools/kernel_arguments.h"

namespace sparsekiln::tools {

/// Adds `--json` to a subcommand.
void add_json(CLI::App& app, Invocation& invocation);

/// --shard I/N, as tools/shard.h reads it.
void add_shard(CLI::App& app, std::string& shard);

/// Check a value and say in words what is wrong with it: a whole number, one from 0 (a seed), any number.
[[nodiscard]] CLI::Validator whole_number();
[[nodiscard]] CLI::Validator natural_number();
[[nodiscard]] CLI::Validator real_number();

/// Adds all options of a kernel.
void add_kernel(CLI::App& app, KernelArguments& arguments);

/// Adds the options that say what is computed and how, and where it is kept: no file, no target, no packs.
void add_problem(CLI::App& app, KernelArguments& arguments);

}  // namespace sparsekiln::tools
