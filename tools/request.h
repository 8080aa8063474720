#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>
#include <sparsekiln/layout.h>

namespace sparsekiln::tools {

/// The layout file and the options that say what to compile of it, as typed: shared by `compile`, `run`,
/// `verify` and `precompile`.
struct Request {
  std::filesystem::path file;
  std::string block = "32";
  std::string batch = "1";
  std::string dtype = "f32";
  std::string out_dtype;  ///< empty: as dtype
  std::string math = "ieee";
  std::string operation = "forward";
  std::string activation_order = "batch-major";
  std::string epilogue = "none";
  std::string derivative = "none";
  bool strict_absent = false;
  bool gates = false;
  bool bias_gradient = false;
  bool gate_gradient = false;
  std::int64_t in_features = 0;  ///< 0: all of the layout's
  std::int64_t out_features = 0;
  std::int32_t alignment = 16;
  std::string target = "auto";
  std::string config;  ///< empty: tuned, or chosen by the cost model
  bool attached = false;
  bool tiered = false;
  std::filesystem::path cache_dir;
  std::vector<std::filesystem::path> packs;
  std::string require = "anything";

  /// Throws `invalid_argument` for what is unknown, saying what is known. Reads no file.
  [[nodiscard]] Options options() const;
};

/// `build` and `compile`, for which a kernel that is missing in packs is missing for this very file.
[[nodiscard]] Built build_request(const Request& request, const Layout& layout, const Options& options);
[[nodiscard]] Kernel compile_request(const Request& request, const Layout& layout, const Options& options);

}  // namespace sparsekiln::tools
