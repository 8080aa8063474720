#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

namespace sparsekiln::bench {

/// The arguments of a program of this folder.
class CommandLine {
 public:
  CommandLine(int argc, char** argv) : arguments_(argv, argv + argc) {}

  /// Removes an option of the program's own, `--name=VALUE` or `--name VALUE`, and returns its value. Throws
  /// `invalid_argument` if the value is missing.
  [[nodiscard]] std::optional<std::string> take(std::string_view name);
  /// Removes `--name`; returns whether it was there.
  [[nodiscard]] bool take_flag(std::string_view name);
  /// The only argument that remains. Throws `invalid_argument` that says `what` is wanted where there is
  /// none, an option, or more.
  [[nodiscard]] const std::string& only(std::string_view what) const;
  /// The remaining arguments, the program's name first.
  [[nodiscard]] const std::vector<std::string>& rest() const { return arguments_; }

 private:
  std::vector<std::string> arguments_;
};

/// The main function of a program that is no benchmark: runs `program`. Exit status: 0; 1 where a file cannot
/// be read; 2 for whatever else is thrown, which is said.
[[nodiscard]] int run_program(int argc, char** argv, const std::function<void(CommandLine& line)>& program);

/// The main function of a benchmark program. `declare` removes the program's own options and registers its
/// benchmarks; the options of Google Benchmark are also accepted. So is `--short`, which all programs and
/// scripts here have: the same measurements of small layers, a few times each. They take seconds and show
/// whether the program works, and their figures mean nothing. `see` is called with everything that is
/// reported. Exit status: 0; 1 if a benchmark failed, threw, or none ran; 2 for an unknown or wrong option.
[[nodiscard]] int run_benchmarks(
    int argc, char** argv, const std::function<void(CommandLine& line, bool is_short)>& declare,
    const std::function<void(const benchmark::BenchmarkReporter::Run&)>& see = {});

}  // namespace sparsekiln::bench
