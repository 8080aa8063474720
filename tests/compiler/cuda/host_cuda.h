#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <sparsekiln/binary.h>

#include "compiler/source.h"

namespace sparsekiln::cuda {

/// Emitted CUDA source, compiled as C++ for this machine with a few definitions in front of it, and run: a
/// thread is a fiber that stops at barriers, CTAs run one after the other in an order that the seed decides,
/// and asynchronous copies happen as late as they may, or as early. Matrix loads and products stop the fibers
/// of a warp likewise; matrix loads and copies that meet a bank conflict are faults. Slow and simple; it
/// executes tables, loops, tails, fragments and combines for real.
class HostModule {
 public:
  explicit HostModule(const Source& source);
  ~HostModule();
  HostModule(const HostModule&) = delete;
  HostModule& operator=(const HostModule&) = delete;

  struct Arguments {
    const void* x = nullptr;
    const void* w = nullptr;
    void* y = nullptr;
    void* workspace = nullptr;
    std::int32_t n = 0;
    std::int64_t x_stride = 0;
    std::int64_t y_stride = 0;
  };
  /// When asynchronous copies land.
  enum class Copies {
    late,   ///< when they are waited for: reading before that finds what was there
    early,  ///< at once: they overwrite what is still to be read
  };
  /// Runs one entry's grid, at most `max_grid_y` high. Empty, or what the threads did wrong.
  [[nodiscard]] std::string run(const Entry& entry, const Arguments& arguments, unsigned seed, Copies copies,
                                std::int32_t max_grid_y = 65535) const;

 private:
  std::filesystem::path folder_;
  void* library_ = nullptr;
};

}  // namespace sparsekiln::cuda
