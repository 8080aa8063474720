#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

namespace sparsekiln::bench {

/// What a program of this folder was called with.
class CommandLine {
 public:
  CommandLine(int argc, char** argv) : arguments_(argv, argv + argc) {}

  /// Takes an option of the program's own out, `--name=VALUE` or `--name VALUE`. Throws `invalid_argument`
  /// where the value is missing.
  [[nodiscard]] std::optional<std::string> take(std::string_view name);
  /// Takes `--name` out: whether it was there.
  [[nodiscard]] bool take_flag(std::string_view name);
  /// What is left, the program's name first.
  [[nodiscard]] const std::vector<std::string>& rest() const { return arguments_; }

 private:
  std::vector<std::string> arguments_;
};

/// main of a benchmark program. `declare` takes the program's own options and registers its benchmarks, and
/// the options of Google Benchmark are known besides. So is `--short`, which all programs and scripts here
/// have: the same measurements of small layers, a few times each. They take seconds, say whether the program
/// works, and their figures mean nothing. `see` is called with everything that is reported.
/// Exit status: 0; 1 where a benchmark failed, threw, or none ran; 2 for an option that is unknown or wrong.
[[nodiscard]] int run_benchmarks(
    int argc, char** argv, const std::function<void(CommandLine& line, bool is_short)>& declare,
    const std::function<void(const benchmark::BenchmarkReporter::Run&)>& see = {});

}  // namespace sparsekiln::bench
