#include "runtime/precompile_command.h"

#include <cctype>

#include <fmt/format.h>
#include <sparsekiln/printable.h>

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
  const Problem usual;
  std::string text = "sparsekiln precompile " + quoted(file);
  const auto option = [&](bool given, std::string_view name, std::string_view value) {
    if (given) text += fmt::format(" --{} {}", name, quoted(value));
  };
  const auto flag = [&](bool given, std::string_view name) {
    if (given) text += fmt::format(" --{}", name);
  };
  option(true, "block", to_string(problem.block));
  option(true, "batch", to_string(problem.batch));
  option(true, "dtype", name(problem.dtype));
  option(problem.out_dtype != problem.dtype, "out-dtype", name(problem.out_dtype));
  option(problem.math != usual.math, "math", name(problem.math));
  option(true, "op", name(problem.operation));
  option(problem.order != usual.order, "activation-order", name(problem.order));
  flag(problem.strict_absent, "strict-absent");
  option(problem.epilogue != usual.epilogue, "epilogue", to_string(problem.epilogue));
  option(problem.derivative != usual.derivative, "derivative", name(problem.derivative));
  flag(problem.gates, "gate");
  flag(problem.bias_gradient, "bias-gradient");
  flag(problem.gate_gradient, "gate-gradient");
  option(problem.cut_in_features != 0, "in-features", fmt::format("{}", problem.cut_in_features));
  option(problem.cut_out_features != 0, "out-features", fmt::format("{}", problem.cut_out_features));
  option(problem.alignment != usual.alignment, "alignment", fmt::format("{}", problem.alignment));
  flag(attached, "attached");
  option(!config.empty(), "config", config);
  option(true, "arch", target.to_string());
  option(driver_version != 0, "driver", cuda::version_text(driver_version));
  return text + " -o kernels.pack";
}

}  // namespace sparsekiln
