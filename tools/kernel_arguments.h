#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <sparsekiln/compile.h>
#include <sparsekiln/layout.h>

namespace sparsekiln::tools {

/// The default of each of computation_fields(), as text.
[[nodiscard]] std::vector<std::string> usual_texts();

/// The layout file and the options that say what to compile of it, as typed: shared by `compile`, `run`,
/// `verify` and `precompile`.
struct KernelArguments {
  std::filesystem::path file;
  /// A text for each of computation_fields(), in their order.
  std::vector<std::string> fields = usual_texts();
  std::int64_t in_features = 0;  ///< 0: all of the layout's
  std::int64_t out_features = 0;
  bool transposed = false;     ///< the convolution is
  std::filesystem::path taps;  ///< of the convolution; empty: those that its text says
  std::string target = "auto";
  std::string config;  ///< empty: tuned, or the default plan's
  bool attached = false;
  bool tiered = false;
  std::filesystem::path cache_dir;
  std::vector<std::filesystem::path> packs;
  std::string require = "anything";

  /// The text of the field of that name.
  [[nodiscard]] std::string& text_of(std::string_view field);
  /// Throws `invalid_argument` for what is unknown, saying what is known. Reads no file but `taps`.
  [[nodiscard]] Options options() const;
};

/// `build` and `compile`, for which a kernel that is missing in packs is missing for this very file.
[[nodiscard]] Built build_for(const KernelArguments& arguments, const Layout& layout, const Options& options);
[[nodiscard]] Kernel compile_for(const KernelArguments& arguments, const Layout& layout,
                                 const Options& options);

}  // namespace sparsekiln::tools
