#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <sparsekiln/compile.h>

#include "runtime/build_job.h"
#include "tools/answer.h"
#include "tools/kernel_arguments.h"

namespace sparsekiln::tools {

/// One kernel to be made ahead of time, or to be tuned.
struct KernelJob {
  std::string name;  ///< for people: where it was asked for, and what it is
  BuildJob job;
};

/// Layout files, each read once.
class LayoutFiles {
 public:
  /// Throws as Layout::load does.
  [[nodiscard]] const Layout& load(const std::filesystem::path& file);

 private:
  std::map<std::filesystem::path, Layout> loaded_;
};

/// A job for each architecture: of a layout file and the options of the command line. Throws
/// `invalid_argument`.
[[nodiscard]] std::vector<KernelJob> jobs_of_layout(const KernelArguments& arguments,
                                                    const std::vector<std::string>& archs,
                                                    LayoutFiles& layouts);

/// The jobs of a jobs file; its grammar is in docs/packs.md. `archs` stand in for those of the file where
/// they are given. Throws `invalid_argument` as "FILE:LINE: what is wrong, and what would work".
[[nodiscard]] std::vector<KernelJob> jobs_of_file(const std::filesystem::path& file,
                                                  const std::vector<std::string>& archs,
                                                  const std::filesystem::path& cache_dir,
                                                  LayoutFiles& layouts);

/// A job for all that a store has seen: as it is there, or for `archs` where they are given. Says in
/// `left_out` what cannot be made again.
[[nodiscard]] std::vector<KernelJob> jobs_of_store(const std::filesystem::path& cache_dir,
                                                   const std::vector<std::string>& archs,
                                                   std::vector<std::string>& left_out);

/// All that a command line asks for: of layouts with the options of `what`, of jobs files (.json), and of the
/// store. What of the store cannot be made again is a warning of the answer's. Throws `invalid_argument` for
/// a layout without `archs`.
[[nodiscard]] std::vector<KernelJob> jobs_of(const KernelArguments& what,
                                             const std::vector<std::filesystem::path>& files,
                                             const std::vector<std::string>& archs, bool from_store,
                                             Answer& answer);

/// `archs`, each once, and after each whose code runs on its own part only (sm_90a) the plain architecture.
/// Throws `invalid_argument` for what Target::parse does not know.
[[nodiscard]] std::vector<std::string> with_plain_archs(const std::vector<std::string>& archs);

}  // namespace sparsekiln::tools
