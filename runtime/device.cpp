#include "runtime/device.h"

#include <fmt/format.h>

namespace sparsekiln {

std::int32_t Device::active_clusters(std::int32_t) const { return 0; }

void Module::pack(const void*, void*) const {
  throw Error(ErrorKind::driver, "w: kernels of this device read the weight unpacked; packed=0 would work");
}

std::unique_ptr<Module> Module::relayout(std::shared_ptr<const Binary>) const {
  throw Error(ErrorKind::driver, "kernels of this device have their layout in their code; compile again");
}

void check_has_layout(const Binary& binary) {
  if (!binary.lacks_layout()) return;
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("loading a kernel with the plan '{}': its tables are attached, and it lacks the layout "
                  "that they are made of; compile() and build() attach one",
                  to_string(binary.plan)));
}

}  // namespace sparsekiln
