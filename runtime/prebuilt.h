#pragma once

#include <string>
#include <string_view>

#include <sparsekiln/compile.h>
#include <sparsekiln/error.h>

#include "runtime/build_job.h"
#include "runtime/read_only_stores.h"

namespace sparsekiln {

/// What Require::prebuilt asks for is in no pack. `what()` names the layout's file FILE, which a caller who
/// knows it can put there.
class MissingPrebuilt : public Error {
 public:
  MissingPrebuilt(const BuildJob& job, ReadOnlyStores& layers);
  /// The same with the file's name in the command.
  [[nodiscard]] Error for_file(std::string_view file) const;

 private:
  struct Parts {
    std::string missing;  ///< with the command left out at its end
    Problem problem;
    Target target;
    std::string config;
    bool attached = false;
    int driver_version = 0;
    [[nodiscard]] std::string text(std::string_view file) const;
  };
  explicit MissingPrebuilt(Parts parts);
  static Parts parts_of(const BuildJob& job, ReadOnlyStores& layers);
  Parts parts_;
};

/// The plan to take of those that the layers hold for the job's problem, target and driver: `wanted` itself
/// if they do, else the nearest to it; `wanted` where there is none at all.
[[nodiscard]] Plan held_plan(const BuildJob& job, Plan wanted, ReadOnlyStores& layers);

}  // namespace sparsekiln
