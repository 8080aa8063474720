#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/conformance/runner.h"

namespace sparsekiln::conformance {

/// The answers of devices, as files with {"answers": {"device", "compute_capability", "driver", "cases"}}
/// (the results of `./dev gpu conformance` are one). For each case, by its title, they have a digest of what
/// was asked, and the values of the threads in hexadecimal. An answer to another question is not compared.
class GoldenAnswers {
 public:
  struct Entry {
    std::string device;
    Answer answer;
  };

  /// All answers in the .json files below a folder; none if there is no folder. Throws `invalid_argument` for
  /// another kind of file.
  [[nodiscard]] static GoldenAnswers load(const std::filesystem::path& folder);
  /// The answers to exactly this case, by each device that gave one.
  [[nodiscard]] std::vector<Entry> to(const Case& test) const;

 private:
  struct Stored {
    std::string device, digest, values;
  };
  std::map<std::string, std::vector<Stored>> by_title_;
};

/// Collects what one device answers.
class AnswerWriter {
 public:
  void add(const Case& test, const Answer& answer);
  /// Writes one file, a line a case.
  void write(const std::filesystem::path& file, const cuda::DeviceInfo& device, int driver_version) const;

 private:
  std::map<std::string, std::string> by_title_;  ///< digest and values
};

}  // namespace sparsekiln::conformance
