#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <sparsekiln/binary.h>

#include "runtime/cuda/context.h"

namespace sparsekiln::cuda {

/// The tables of a Binary with an attached layout in the memory of a context, until this is destroyed; of
/// another Binary nothing.
class AttachedTables {
 public:
  /// Uploads them in one allocation; they are there when this returns, for launches on any stream. May be
  /// called while streams are captured. The context must be current. Throws `driver`.
  AttachedTables(std::shared_ptr<const Context> context, const Binary& binary);
  AttachedTables(const AttachedTables&) = delete;
  AttachedTables& operator=(const AttachedTables&) = delete;
  /// The driver waits for kernels that read them.
  ~AttachedTables();

  /// What an entry's parameter for Argument::tables is copied from: of the memory order of AttachedTables in
  /// templates/schedule.cuh and AttachedRuns in templates/sddmm.cuh. Null for an entry that takes none.
  [[nodiscard]] const void* argument(std::size_t entry) const {
    return arguments_.empty() ? nullptr : &arguments_[entry];
  }

 private:
  struct Parameter {
    std::uint64_t arrays[TableImage::kArrays];  ///< addresses on the device
    std::int64_t counter_bytes;
    std::int64_t tile_bytes;
    std::int32_t counters;  ///< TableImage::counters
    std::int32_t features;  ///< of y of a forward product
    std::int32_t columns;   ///< of the product, of a linear layer
    std::int32_t blocks;    ///< of the weight
  };
  static_assert(sizeof(Parameter) == 88 && alignof(Parameter) == 8, "as nvcc lays out AttachedTables");

  void upload(const Binary& binary);

  std::shared_ptr<const Context> context_;
  CUdeviceptr memory_ = 0;
  std::vector<Parameter> arguments_;  ///< of each entry, or none
};

}  // namespace sparsekiln::cuda
