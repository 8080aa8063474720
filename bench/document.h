#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <benchmark/benchmark.h>

namespace sparsekiln::bench {

/// The medians that a program reports.
class Medians {
 public:
  /// Keeps what is reported if it is a median.
  void keep(const benchmark::BenchmarkReporter::Run& run);
  /// The median of a benchmark; none if it did not run.
  [[nodiscard]] std::optional<double> ms(const std::string& benchmark) const;

 private:
  std::map<std::string, double> ms_;
};

/// What stands after `part:` in the name of a benchmark, such as 32 of "…/block:32/n:1".
[[nodiscard]] std::string part_of_name(const benchmark::BenchmarkReporter::Run& run, const std::string& part);

/// A Markdown file that has the table of a program of this folder, between the marks `<!-- NAME -->` and
/// `<!-- end of NAME -->`.
class Document {
 public:
  /// Throws `invalid_argument` where the marks are not there.
  Document(std::filesystem::path path, const std::string& program);
  void write(const std::string& table) const;

 private:
  std::filesystem::path path_;
  std::string before_;
  std::string after_;
};

}  // namespace sparsekiln::bench
