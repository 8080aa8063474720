#include "runtime/precompile_command.h"

#include <cctype>

#include <fmt/format.h>
#include <sparsekiln/printable.h>

#include "compiler/computation_fields.h"
#include "compiler/cuda/compatibility.h"

namespace sparsekiln {
namespace {

/// As a POSIX shell reads back; what is not printable as `$'\x1b'`.
std::string quoted(std::string_view word) {
  bool plain = !word.empty();
  for (const char letter : word)
    plain = plain && (std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
                      std::string_view("_-./:+=,@%").find(letter) != std::string_view::npos);
  if (plain) return std::string(word);
  if (printable(word) != word) {
    std::string escaped;
    for (const char letter : word)
      escaped.append(letter == '\'' || letter == '\\' ? "\\" : "").append(1, letter);
    return "$'" + printable(escaped) + "'";
  }
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

}  // namespace

std::string precompile_command(const Problem& problem, const Target& target, bool attached,
                               std::string_view config, std::string_view file, int driver_version) {
  std::string text = "sparsekiln precompile " + quoted(file);
  const auto option = [&](bool given, std::string_view name, std::string_view value) {
    if (given) text += fmt::format(" --{} {}", name, quoted(value));
  };
  const auto flag = [&](bool given, std::string_view name) {
    if (given) text += fmt::format(" --{}", name);
  };
  Options stated;  // by the words so far
  for (const ComputationField& field : computation_fields()) {
    const std::string value = field.text(problem);
    if (value == field.text(computation_of(stated))) continue;
    field.read(stated, value);
    if (field.kind == ComputationField::Kind::flag)
      flag(true, field.option);
    else
      option(true, field.option, value);
  }
  option(problem.cut_in_features != 0, "in-features", fmt::format("{}", problem.cut_in_features));
  option(problem.cut_out_features != 0, "out-features", fmt::format("{}", problem.cut_out_features));
  flag(attached, "attached");
  option(!config.empty(), "config", config);
  option(true, "arch", target.to_string());
  option(driver_version != 0, "driver", cuda::version_text(driver_version));
  return text + " -o kernels.pack";
}

}  // namespace sparsekiln
