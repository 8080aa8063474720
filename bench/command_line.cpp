#include "bench/command_line.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sparsekiln/error.h>

#include "system/standard_streams.h"

namespace sparsekiln::bench {
namespace {

using Run = benchmark::BenchmarkReporter::Run;

/// Prints as --benchmark_format asks for, and remembers whether all went well.
class Watch : public benchmark::BenchmarkReporter {
 public:
  explicit Watch(const std::function<void(const Run&)>& see)
      : shown_(benchmark::CreateDefaultDisplayReporter()), see_(see) {}
  bool ReportContext(const Context& context) override { return shown_->ReportContext(context); }
  void ReportRuns(const std::vector<Run>& runs) override {
    shown_->ReportRuns(runs);
    for (const Run& run : runs) {
      failed_ = failed_ || run.error_occurred;
      if (see_) see_(run);
    }
  }
  void Finalize() override { shown_->Finalize(); }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  benchmark::BenchmarkReporter* shown_;  // Google Benchmark's own
  const std::function<void(const Run&)>& see_;
  bool failed_ = false;
};

int say(const CommandLine& line, const std::exception& error, int status) {
  write_message(fmt::format("{}: {}\n", line.rest().front(), error.what()));
  return status;
}

}  // namespace

std::optional<std::string> CommandLine::take(std::string_view name) {
  const auto found = std::find_if(arguments_.begin() + 1, arguments_.end(), [&](const std::string& argument) {
    return argument.starts_with(name) && (argument.size() == name.size() || argument[name.size()] == '=');
  });
  if (found == arguments_.end()) return std::nullopt;
  const bool joined = found->size() > name.size();
  if (!joined && found + 1 == arguments_.end())
    throw Error(ErrorKind::invalid_argument, fmt::format("{} needs a value", name));
  std::string value = joined ? found->substr(name.size() + 1) : *(found + 1);
  arguments_.erase(found, found + (joined ? 1 : 2));
  return value;
}

bool CommandLine::take_flag(std::string_view name) { return std::erase(arguments_, name) > 0; }

const std::string& CommandLine::only(std::string_view what) const {
  if (arguments_.size() != 2 || arguments_[1].starts_with("--"))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("one {} is wanted, not '{}'", what,
                            fmt::join(arguments_.begin() + 1, arguments_.end(), " ")));
  return arguments_[1];
}

int run_program(int argc, char** argv, const std::function<void(CommandLine&)>& program) {
  CommandLine line(argc, argv);
  try {
    program(line);
    return 0;
  } catch (const Error& error) {
    return say(line, error, error.kind() == ErrorKind::io ? 1 : 2);
  } catch (const std::exception& error) {
    return say(line, error, 2);
  }
}

int run_benchmarks(int argc, char** argv, const std::function<void(CommandLine&, bool)>& declare,
                   const std::function<void(const Run&)>& see) {
  CommandLine line(argc, argv);
  std::vector<std::string> given;
  try {
    const bool is_short = line.take_flag("--short");
    declare(line, is_short);
    given = line.rest();
    if (is_short) given.insert(given.begin() + 1, "--benchmark_min_time=0.01");  // what is given later wins
  } catch (const std::exception& error) {
    return say(line, error, 2);
  }
  std::vector<char*> left;
  for (std::string& argument : given) left.push_back(argument.data());
  left.push_back(nullptr);  // as main gets it
  int count = static_cast<int>(given.size());
  benchmark::Initialize(&count, left.data());
  if (benchmark::ReportUnrecognizedArguments(count, left.data())) return 2;
  try {
    Watch watch(see);
    const std::size_t ran = benchmark::RunSpecifiedBenchmarks(&watch);
    return ran == 0 || watch.failed() ? 1 : 0;
  } catch (const std::exception& error) {
    return say(line, error, 1);
  }
}

}  // namespace sparsekiln::bench
