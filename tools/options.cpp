#include "tools/options.h"

#include <charconv>
#include <cstdint>

#include <fmt/format.h>
#include <sparsekiln/printable.h>

#include "compiler/computation_fields.h"

namespace sparsekiln::tools {
namespace {

template <typename Number>
bool reads_as(const std::string& text) {
  Number value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc{} && end == text.data() + text.size();
}

/// An option, or a flag, whose text goes to `text`.
void add_field(CLI::App& app, const ComputationField& field, std::string& text) {
  std::string option = fmt::format("--{}", field.option);
  if (!field.option_alias.empty()) option += fmt::format(",--{}", field.option_alias);
  const std::string choices = field.choices();
  const std::string help =
      choices.empty() ? std::string(field.help) : fmt::format("{}: {}", field.help, choices);
  if (field.kind == ComputationField::Kind::flag)
    app.add_flag_function(option, [&text](std::int64_t given) { text = given > 0 ? "yes" : "no"; }, help);
  else
    app.add_option(option, text, help)->capture_default_str();
}

}  // namespace

void add_json(CLI::App& app, Invocation& invocation) {
  app.add_flag("--json", invocation.json, "print one JSON document on standard output, nothing else there");
}

void add_shard(CLI::App& app, std::string& shard) {
  app.add_option("--shard", shard, "only the jobs of machine I of N, counted from 0: 0/8 to 7/8")
      ->type_name("I/N");
}

CLI::Validator whole_number() {
  return {[](std::string& text) {
            return reads_as<std::int64_t>(text)
                       ? std::string()
                       : fmt::format("'{}' is not a whole number below 2^63", printable(text));
          },
          ""};
}

CLI::Validator natural_number() {
  return {[](std::string& text) {
            return reads_as<std::uint64_t>(text)
                       ? std::string()
                       : fmt::format("'{}' is not a whole number from 0, below 2^64", printable(text));
          },
          ""};
}

CLI::Validator real_number() {
  return {[](std::string& text) {
            return reads_as<double>(text) ? std::string()
                                          : fmt::format("'{}' is not a number such as 0.25", printable(text));
          },
          ""};
}

void add_problem(CLI::App& app, KernelArguments& arguments) {
  const auto fields = computation_fields();
  for (std::size_t i = 0; i < fields.size(); ++i) add_field(app, fields[i], arguments.fields[i]);
  app.add_option("--in-features", arguments.in_features, "features of x, where the last block is partial")
      ->check(whole_number());
  app.add_option("--out-features", arguments.out_features, "features of y, where the last block is partial")
      ->check(whole_number());
  app.add_flag("--transposed", arguments.transposed,
               "--conv is a transposed convolution, and its input the extents of x");
  app.add_option(
      "--taps", arguments.taps,
      "the taps that a convolution has, .npy of bool or integers or text of 0 and 1: [taps] or the "
      "kernel's shape, of all blocks, or with an axis of blocks in front");
  app.add_option("--config", arguments.config, "pins the config, e.g. \"simt tile_n=64 tile_out=4\"");
  app.add_flag(
      "--attached", arguments.attached,
      "give the layout to the kernel as tables instead of compiling it in: all layouts share one compile");
  app.add_option("--cache-dir", arguments.cache_dir,
                 "folder of the store (else SPARSEKILN_CACHE_DIR, XDG_CACHE_HOME/sparsekiln, "
                 "~/.cache/sparsekiln)");
}

void add_kernel(CLI::App& app, KernelArguments& arguments) {
  app.add_option("FILE", arguments.file,
                 "layout: .npy (2-D bool or integer), .mtx (Matrix Market), .smtx, or text of 0 and 1")
      ->required();
  add_problem(app, arguments);
  app.add_option(
         "--target", arguments.target,
         "auto, cpu, cuda, cuda:1, emulated, emulated:sm_80, an architecture (sm_90, sm_80:108) or a part "
         "(h100)")
      ->capture_default_str();
  app.add_flag("--tiered", arguments.tiered,
               "run attached at once, and baked as soon as that is compiled; compile makes the baked one");
  app.add_option("--pack", arguments.packs,
                 "a pack, or the folder of a store that others keep, to look in first; may be given again")
      ->allow_extra_args(false);
  app.add_option("--require", arguments.require,
                 "anything; built: never compiles, and fails where neither packs nor the store hold the "
                 "kernel; or prebuilt: the same, of the packs alone, with the nearest config that they hold")
      ->capture_default_str();
}

}  // namespace sparsekiln::tools
