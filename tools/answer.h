#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

// Instantiated once, in answer.cpp: what a class this large costs would be paid in every file.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace sparsekiln::tools {

/// Keys in the order in which they were added.
using Json = nlohmann::ordered_json;

/// Exit statuses: what a shell script can rely on.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kNoSense = 2;

/// What a subcommand found out. `main` prints one form of it and ends with `status`.
struct Answer {
  Json json;                               ///< the document of --json
  std::string text;                        ///< for people; ends with a newline
  std::vector<std::string> warnings = {};  ///< for standard error, and in the document
  int status = kDone;
};

}  // namespace sparsekiln::tools
