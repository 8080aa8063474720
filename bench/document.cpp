#include "bench/document.h"

#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <sparsekiln/error.h>

namespace sparsekiln::bench {

void Medians::keep(const benchmark::BenchmarkReporter::Run& run) {
  if (run.run_type == benchmark::BenchmarkReporter::Run::RT_Aggregate && run.aggregate_name == "median")
    ms_[run.run_name.function_name] =
        run.GetAdjustedRealTime() / benchmark::GetTimeUnitMultiplier(run.time_unit) * 1e3;
}

std::optional<double> Medians::ms(const std::string& benchmark) const {
  const auto found = ms_.find(benchmark);
  return found == ms_.end() ? std::nullopt : std::optional(found->second);
}

Document::Document(std::filesystem::path path, const std::string& program) : path_(std::move(path)) {
  const std::string begin = fmt::format("<!-- {} -->\n", program);
  const std::string end = fmt::format("<!-- end of {} -->", program);
  std::ifstream in(path_);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const std::size_t from = text.find(begin), to = text.find(end);
  if (from == std::string::npos || to == std::string::npos || to < from)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{}: it lacks the marks {}and {}", path_.string(), begin, end));
  before_ = text.substr(0, from + begin.size());
  after_ = text.substr(to);
}

void Document::write(const std::string& table) const { std::ofstream(path_) << before_ << table << after_; }

std::string part_of_name(const benchmark::BenchmarkReporter::Run& run, const std::string& part) {
  const std::string& name = run.run_name.function_name;
  const std::size_t begin = name.find("/" + part + ":") + part.size() + 2;
  return name.substr(begin, name.find('/', begin) - begin);
}

}  // namespace sparsekiln::bench
