#pragma once

#include <memory>

#include <sparsekiln/compile.h>

#include "runtime/device.h"

namespace sparsekiln {

/// What all handles of one loaded Binary share.
struct Kernel::Impl {
  std::shared_ptr<const Binary> binary;
  std::shared_ptr<const Device> device;
  std::unique_ptr<const Module> module;
  Digest key;
};

}  // namespace sparsekiln
